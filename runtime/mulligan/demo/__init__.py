"""The worked example behind `mulligan demo`: a deployment with a wrong step, repaired. Real programs, nothing declared."""

from mulligan.demo.scenario import Narrator, run_demo

__all__ = ["Narrator", "run_demo"]
