//! Tests of strategic merge.
