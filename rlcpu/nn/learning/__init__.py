"""One learner for all algorithms: minibatches, gradients, steps of Adam, in threads.

Read `learner` (what agents hold), `update` (its kernel), `instructions` (what that does for each of
a program's) and `workers` (the threads that share it); then `columns` and `frame`, how a batch gets
there, `settings`, `order`, `adam`, and `machine_code`, what is compiled for it.
"""
