"""The contract of a parameter server: `pserver.proto`, what protoc makes of it, and how tensors are put into it."""
