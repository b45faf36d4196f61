//! Reading: get, list, watch. Objects are copied as stored; only tables, partial objects and converted versions are
//! decoded.

pub mod get;
pub mod list;
pub mod logs;
pub mod page;
pub mod select;
pub mod shape;
pub mod watch;
