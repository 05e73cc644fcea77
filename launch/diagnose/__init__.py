"""Why a run failed, from its logs."""
