"""Options: how they are declared (`fields`), those of a run (`run`), and how own tasks are written (`task_specs`)."""

from tasso.config.fields import SCOPES, Option, Scope, check_options, choices_of, coerce, option, options_of, require
from tasso.config.paths import absolute_paths
from tasso.config.run import (
    OWN,
    PROTOCOLS,
    EvaluatedSplit,
    OptimizerName,
    Protocol,
    RunConfig,
    Tracker,
    from_dict,
    read_templates,
    unwrap,
)

__all__ = [
    "OWN",
    "PROTOCOLS",
    "SCOPES",
    "EvaluatedSplit",
    "OptimizerName",
    "Option",
    "Protocol",
    "RunConfig",
    "Scope",
    "Tracker",
    "absolute_paths",
    "check_options",
    "choices_of",
    "coerce",
    "from_dict",
    "option",
    "options_of",
    "read_templates",
    "require",
    "unwrap",
]
