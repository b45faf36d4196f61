//! What befalls processes: kills, full disks, damaged files, a twin.

mod disk;
mod hub;
mod kills;
mod sealed;
mod start;
