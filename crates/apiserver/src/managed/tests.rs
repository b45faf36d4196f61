//! Tests of ownership: sequences recorded from a real kube-apiserver, rules case by case, and properties.

mod cases;
mod properties;
mod replay;
mod thing;
