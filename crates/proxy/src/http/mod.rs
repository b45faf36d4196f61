//! One request, from its head to the end of its answer.
//!
//! ```text
//!   serve ─► handle ─► target (host, path: checked, made normal) ─► table ─► forward ─► upstream
//!                                                                    │          │
//!                                                                    └► answer  └► body (counts, deadlines, gives the
//!                                                                                  connection back at its end)
//! ```
//!
//! Reading order: `conn` (who asks), `received` (what comes with it), `before`, `handle`, `target`, `headers`, `forward`, `journey`, `held`, `interim`,
//! `exchange`, `account`, `body`, `outflow`, `own`, `answer`, `upgrade`.

mod account;
mod answer;
mod before;
mod body;
mod conn;
mod exchange;
mod forward;
mod handle;
mod headers;
mod held;
mod interim;
mod journey;
mod outflow;
mod own;
mod received;
mod target;
mod upgrade;

pub(crate) use before::{Before, Failed};
pub(crate) use body::{Body, BodyError, Upload};
pub(crate) use conn::{Conn, ConnInfo, TlsInfo};
pub(crate) use handle::{Stream, Ticket, handle};
pub(crate) use headers::strip_hop;
pub(crate) use held::{HELD_MAX, SHORT_MAX};
pub(crate) use interim::Answering;
pub(crate) use outflow::{break_off, patiently, send, send_all};
pub(crate) use received::Received;
pub(crate) use target::{plain_host, plain_path};
pub(crate) use upgrade::Tunnel;
