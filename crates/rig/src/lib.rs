//! Starts, breaks and stops whole real Kubernetes clusters in network namespaces: for tests and benches.
//!
//! Nothing is simulated: etcd, kube-apiserver, kube-controller-manager and kube-scheduler on a machine of their own, and on
//! every node containerd, runc, the kubelet, kube-proxy and CNI; CoreDNS as the cluster's DNS. A machine is a set of
//! namespaces with its own network, disk and host name.
//!
//! ```text
//!  host ──── backbone (routes; cuts and delays happen here) ──┬── bridge c1 ── us-east-control, us-east-1, us-east-2
//!                                                             └── bridge c2 ── eu-west-control, eu-west-1, eu-west-2
//! ```
//!
//! In reading order:
//!
//! | file | what |
//! |---|---|
//! | `plan`, `render`, `components`, `manifests` | pure: names and addresses, configuration files, command lines, objects |
//! | `assets`, `image`, `pki` | binaries found or built; container images without a registry; certificates |
//! | `world`, `machine`, `daemon`, `cgroup` | the namespaces, and how they end whatever happens |
//! | `cluster`, `rig` | what is started in which order, and when it is ready |
//! | `faults`, `delay`, `balancer` | what can be broken, and the load balancer |
//! | `control` | a running rig takes orders over a socket |
//! | `link`, `front` | apart from all that: one link with a few nodes, and a group of edges on it |
//! | `client`, `ear` | who asks an address again and again, and who hears on a link who holds it |
//! | `traces` | what a rig could leave behind, for those who look |
//!
//! Deliberately absent: pods of one cluster cannot reach those of another, and all clusters use the same pod and service
//! addresses, so nothing can come to rely on a flat network.

mod api;
pub mod assets;
mod balancer;
mod cgroup;
pub mod client;
mod cluster;
mod components;
pub mod control;
mod daemon;
mod delay;
pub mod ear;
mod error;
mod faults;
pub mod front;
pub mod image;
mod link;
mod machine;
mod manifests;
mod pki;
pub mod plan;
mod program;
mod render;
mod rig;
mod traces;
mod world;

pub use api::Api;
pub use error::{Error, chain};
pub use link::{Link, Node};
pub use rig::{Config, Member, Rig, Say, Stop, check_machine, directory, missing_programs, sweep};
pub use traces::{surroundings, traces};
