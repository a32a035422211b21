"""What all tests share: how Hypothesis runs, and which doors a node opens that a test starts as a process.

The default profile is derandomized, so that a run today and a run tomorrow try the same examples and a failure can be
repeated by running the test again. `HYPOTHESIS_PROFILE=soak` searches at random, `HYPOTHESIS_MAX_EXAMPLES` deep.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The other doors have ports of their own. A test that is about one says so; `Settings` made in a test do not look here.
os.environ.update(PENSTOCK_ETZEL_ENABLED="false", PENSTOCK_MONIQUE_ENABLED="false")

# A busy machine is no reason to fail: time limits are pytest's, not those of one example.
settings.register_profile(
    "default",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak",
    derandomize=False,
    deadline=None,
    max_examples=int(os.environ.get("HYPOTHESIS_MAX_EXAMPLES", "10000")),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
