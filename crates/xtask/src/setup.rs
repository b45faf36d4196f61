//! What tests need from the machine: found, installed when we may, or named when we may not.

use std::process::Command;

use anyhow::Result;

use crate::shell::{has, output, run, say};

/// A program that tests run, and the Debian package it comes from.
#[derive(Clone, Copy)]
struct Need {
    program: &'static str,
    package: &'static str,
    /// What is skipped without it.
    suites: &'static str,
}

const NEEDS: &[Need] = &[
    Need {
        program: "etcd",
        package: "etcd-server",
        suites: "store on etcd, several hubs, comparison with Kubernetes",
    },
    Need { program: "go", package: "golang-go", suites: "comparison with Kubernetes, client-go" },
    Need { program: "python3", package: "python3", suites: "Python client" },
    Need { program: "named", package: "bind9", suites: "publishing to BIND" },
    Need { program: "knotd", package: "knot", suites: "publishing to Knot" },
    Need { program: "dig", package: "bind9-dnsutils", suites: "publishing to other DNS servers" },
    Need { program: "etcdctl", package: "etcd-client", suites: "publishing to CoreDNS" },
    Need { program: "curl", package: "curl", suites: "bad input" },
    Need { program: "keepalived", package: "keepalived", suites: "virtual IPs by keepalived" },
    Need { program: "pgrep", package: "procps", suites: "virtual IPs on a rig" },
    Need { program: "tcpdump", package: "tcpdump", suites: "virtual IPs by keepalived" },
    Need { program: "dig", package: "bind9-dnsutils", suites: "DNS by dig" },
    Need { program: "chromium", package: "chromium", suites: "HTTPS by a browser" },
];

/// Makes sure that the programs are there; what cannot be had is said, with the suites that will be skipped.
pub(crate) fn programs() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    if is_root() && has("apt-get") {
        say(&format!("    installing {}", packages.join(" ")));
        run(Command::new("apt-get").args(["update", "-qq"]))?;
        let mut install = Command::new("apt-get");
        install.args(["install", "-y", "-qq", "--no-install-recommends"]).args(&packages);
        run(install.env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    for need in self::missing() {
        say(&format!(
            "    SKIPPED: {}: `{}` not found (apt-get install {})",
            need.suites, need.program, need.package
        ));
    }
    Ok(())
}

/// What is not there. What the rig needs, the rig knows best.
fn missing() -> Vec<Need> {
    let own = NEEDS.iter().filter(|need| !has(need.program)).copied();
    let rig = landfall_rig::missing_programs().into_iter();
    own.chain(rig.map(|(program, package)| Need { program, package, suites: "rig" })).collect()
}

/// Makes sure that peers are there to be measured with: program and package. An error names what cannot be had.
pub(crate) fn install(peers: &[(&str, &str)]) -> Result<()> {
    let missing = || peers.iter().filter(|(program, _)| !has(program));
    let packages: Vec<&str> = missing().map(|(_, package)| *package).collect();
    if !packages.is_empty() && is_root() && has("apt-get") {
        say(&format!("    installing {}", packages.join(" ")));
        run(Command::new("apt-get").args(["update", "-qq"]))?;
        let mut install = Command::new("apt-get");
        install.args(["install", "-y", "-qq", "--no-install-recommends"]).args(&packages);
        run(install.env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    let still: Vec<&str> = missing().map(|(_, package)| *package).collect();
    anyhow::ensure!(still.is_empty(), "cannot measure without: apt-get install {}", still.join(" "));
    Ok(())
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}
