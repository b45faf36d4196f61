//! Starts, breaks and stops whole real Kubernetes clusters in network namespaces: for tests and benches.
