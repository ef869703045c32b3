"""How a policy chooses the actions of a rollout, in kernels.

Read `inputs` (an observation becomes a network's inputs), `prepare` (networks run), `decide` (their
outputs become actions) and `choices` (among many actions); `networks` are the policies that users
have, and `running` asks them outside of rollouts.
"""
