"""What the author of an environment or of a policy writes, checked as it is made.

Read `dynamics` (an environment), `fields` and `trial` (what is checked of it), and `policies`.
`registry` and `names` find environments by their ids, `render` shows them, `scales` are how
networks see them, `arguments` are checked at each call, and `unfit` says what is wrong with a
policy's numbers.
"""
