"""Whether a checkout of an engine is one that can work: asked of the stages that will run it."""

from launch.machine.checks import Check
from pipeline.errors import ConfigError
from stages.base.engine import Checkout
from stages.engines.mindformers.checkout import fits


def check(checkout: Checkout, home: str | None, have: str | None = None) -> Check:
    """The checkout at `home`, or the installed version `have` of its distribution."""
    remedy = f"{checkout.setting}: {checkout.wanted}"
    if home is None:
        if have is None:
            told = "not installed" if checkout.package else f"{checkout.setting} is not set"
            return Check(checkout.name, "problem", told, remedy)
        if fits(have, checkout.window):
            return Check(checkout.name, "ok", have)
        return Check(checkout.name, "problem", have, f"must be {checkout.package}{checkout.window}; {remedy}")
    try:
        return Check(checkout.name, "ok", f"{home}: {checkout.judge(home)}")
    except ConfigError as error:
        told = "; ".join(problem.rule for problem in error.problems)
        own = next((problem.remedy for problem in error.problems if problem.remedy), None)
        remedy = f"{checkout.setting}: {own}" if own else remedy
        return Check(checkout.name, "problem", f"{home}: {told}", remedy)
