"""Thin adapters to what is not ours: so far ONNX, for robots that run a policy without torch."""
