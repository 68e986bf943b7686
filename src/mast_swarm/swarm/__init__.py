"""A swarm of processes on one machine: a simulated world, and each robot a process of its own that runs without torch.

`run.swarm` runs one: `fleet` starts, hears and ends the processes, `arena` is the world that they sense and move in,
`results` what is kept of it.
"""
