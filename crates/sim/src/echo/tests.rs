//! The echo program as its clients see it.
