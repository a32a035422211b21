"""Agreement on the log, as a pure library: proposals and confirmations in, work for the caller out.

``ready.Consensus`` is what the node drives; ``lone.LoneVoter`` is a cluster of one.
"""
