"""The commands there are. A new one: a function that takes the rest of the command line, and a row here."""

from __future__ import annotations

# Topic -> name -> module of this folder and its function, and what the help says.
TOPICS: dict[str, dict[str, tuple[str, str]]] = {
    "look": {
        "demo": ("evaluate:demo", "watch two teams solve the same task, side by side"),
        "play": ("play:play_verb", "the playground: drag, kill and cut off robots while they decide in your browser"),
        "list": ("tasks:list_verb", "what there is: tasks, scenarios, controllers, shipped policies, recipes"),
        "completion": ("completion:completion", "let a shell complete commands, tasks, options and names"),
        "doctor": ("doctor:doctor", "what a bug report should say of this machine, and a self-test of ten seconds"),
        "replay": ("evaluate:replay", "make the HTML replay of recorded episodes"),
    },
    "measure": {
        "evaluate": (
            "evaluate:evaluate_verb",
            "roll policies out on the same start states; tables, summary, curves",
        ),
        "reproduce": (
            "paper:reproduce_verb",
            "run the paper's experiments again: tables, figures, a row for every claim",
        ),
        "verify": ("evaluate:verify_verb", "check the numbers on the cards of the shipped policies"),
        "bench": (
            "bench:bench_verb",
            "measure speed on this machine: training, large teams, the world, every robot alone",
        ),
    },
    "make": {
        "train": ("train:train_verb", "learn a policy by imitation, on a GPU or a laptop; resumable"),
        "tune": ("paper:tune_verb", "search for hyper-parameters, on one machine or many; resumable"),
        "check": ("tasks:check_verb", "check a task of your own, and say what to mend"),
    },
    "run on robots": {
        "export": ("export:export_verb", "write what one robot computes as ONNX, for robots without torch"),
        "team": ("team:team_verb", "keys of a team of robots: new, add, revoke, show"),
        "robot": ("swarm:robot_verb", "run one robot of a team, with a body of yours; needs no torch"),
        "swarm": ("swarm:swarm_verb", "each robot a process of its own, on a real network, in a simulated world"),
    },
}

VERBS = {name: row for rows in TOPICS.values() for name, row in rows.items()}


def summary(name: str) -> str:
    """What the help says about a command."""
    return VERBS[name][1]
