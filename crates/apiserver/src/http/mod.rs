//! The HTTP side: connections in, bodies and media types, answers out.
//!
//! Reading order: [`server`] (connections), [`negotiate`] (what the client takes), [`body`] (what is sent and read),
//! [`answer`] (responses).

pub mod answer;
pub mod body;
pub mod negotiate;
pub mod server;
