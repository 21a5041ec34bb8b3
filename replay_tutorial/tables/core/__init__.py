"""The parts of a server.

cells                      the values, for all tables
table, table_state         the configuration of a table, and its state
items, selectors, rate_limiters, hooks     the parts of a table
message, writer_state      what writers send, and what the server stores about each writer
waiting                    queues of waiting calls
results, checkpoint        results of calls, and the file that `save` writes
arguments                  checks of arguments
"""
