"""The Open Inference Protocol over gRPC: `inference.proto`, and what protoc makes of it."""
