"""How states and observations lie in memory.

`values` are tuples of numbers, as rows of floats; `arrays` states that have arrays, as records;
`groups` observations of several parts.
"""
