//! Tests of ownership.
