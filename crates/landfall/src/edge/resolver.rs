//! The member's own resolver (CoreDNS or kube-dns), which is told to ask the edges for the federation's names.
//!
//! Pods ask their cluster's resolver and nobody else. One block for the federation's zones is added to its configuration, between
//! two marks, and nothing else in there is touched; without it, the configuration is again what it was, to the byte.
//!
//! | where the resolver reads | what is changed |
//! |---|---|
//! | `kube-system/coredns`, which imports `custom/*.server` | the key `landfall.server` of `kube-system/coredns-custom` |
//! | `kube-system/coredns` | a block at the end of its `Corefile` |
//! | `kube-system/kube-dns` | the zones in its `stubDomains` |

use anyhow::{Context, Result, bail};
use landfall_api::rules::read::{child, text};
use serde_json::{Map, Value, json};

use crate::basics::target::Target;

const COREDNS: &str = "coredns";
const CUSTOM: &str = "coredns-custom";
const KUBE_DNS: &str = "kube-dns";
const COREFILE: &str = "Corefile";
/// Our key in the ConfigMap of blocks that CoreDNS imports.
const SERVER_KEY: &str = "landfall.server";
const STUBS: &str = "stubDomains";
const BEGIN: &str = "# landfall: begin; `landfall edge uninstall` takes this out again\n";
const END: &str = "# landfall: end\n";
/// The name of the fields' manager.
const MANAGER: &str = "landfall";
/// Somebody else may change the configuration at the same time: so often we look again.
const TRIES_MAX: usize = 5;

/// Zones, and the address at which the edges answer them.
#[derive(Clone, Debug)]
pub(super) struct Stub {
    /// The zones, without a dot at their end.
    pub(super) zones: Vec<String>,
    /// Where they are answered, at port 53.
    pub(super) address: String,
}

/// Points the member's resolver at the edges; what was done, in words.
pub(super) async fn point(member: &Target, stub: &Stub) -> Result<String> {
    change(member, Some(stub)).await
}

/// Takes our zones out of the member's resolver; what was done, in words.
pub(super) async fn restore(member: &Target) -> Result<String> {
    change(member, None).await
}

async fn change(member: &Target, stub: Option<&Stub>) -> Result<String> {
    for _ in 0..TRIES_MAX {
        let coredns = member.look(&map_path(COREDNS)).await?;
        let kube_dns = member.look(&map_path(KUBE_DNS)).await?;
        let custom = member.look(&map_path(CUSTOM)).await?;
        let decision = decide(coredns.as_ref(), custom.as_ref(), kube_dns.as_ref(), stub)?;
        let Decision::Write { map, data, version } = decision else {
            return Ok(match decision {
                Decision::Same => "the member's resolver is as it should be".into(),
                _ => "the member has neither CoreDNS nor kube-dns; its resolver was left alone".into(),
            });
        };
        let fields = json!({"metadata": {"resourceVersion": version}, "data": data});
        match member.merge(&map_path(map), &fields, MANAGER).await {
            Ok(_) => return Ok(format!("configmap/{map} in kube-system: {}", described(stub))),
            // Whoever was quicker may have changed what we must know.
            Err(error) if error.to_string().contains("Conflict") => {}
            Err(error) => return Err(error).with_context(|| format!("cannot change kube-system/{map}")),
        }
    }
    bail!("somebody else keeps changing the resolver's configuration")
}

fn described(stub: Option<&Stub>) -> String {
    stub.map_or_else(
        || "the federation's zones are taken out".into(),
        |stub| format!("{} are answered by the edges at {}", stub.zones.join(" and "), stub.address),
    )
}

fn map_path(name: &str) -> String {
    format!("/api/v1/namespaces/kube-system/configmaps/{name}")
}

/// What is to be done.
#[derive(Debug, PartialEq)]
enum Decision {
    /// Nothing: all is as it should be.
    Same,
    /// Nothing: there is no resolver that we know.
    Unknown,
    /// Keys of a ConfigMap, if it still has this version.
    Write { map: &'static str, data: Value, version: String },
}

/// Decides what is written where. `stub` is what there shall be; none when our zones shall go.
fn decide(
    coredns: Option<&Value>,
    custom: Option<&Value>,
    kube_dns: Option<&Value>,
    stub: Option<&Stub>,
) -> Result<Decision> {
    let write = |map, object: &Value, key: &str, value: Option<String>| {
        let before = child(child(object, "data"), key).as_str();
        if before == value.as_deref() {
            return Decision::Same;
        }
        let version = landfall_api::meta::resource_version(object).to_owned();
        Decision::Write { map, data: json!({key: value}), version }
    };
    let corefile = coredns.map(|object| text(child(object, "data"), COREFILE));
    if let (Some(object), Some(corefile)) = (coredns, corefile.filter(|text| !text.is_empty())) {
        if let Some(custom) = custom.filter(|_| imports(corefile)) {
            taken(corefile, stub)?;
            let block = stub.map(|stub| block(stub, &port(corefile)));
            return Ok(write(CUSTOM, custom, SERVER_KEY, block));
        }
        let changed = match stub {
            Some(stub) => with(corefile, stub)?,
            None => without(corefile),
        };
        return Ok(write(COREDNS, object, COREFILE, Some(changed)));
    }
    let Some(object) = kube_dns else { return Ok(Decision::Unknown) };
    let known: Map<String, Value> =
        serde_json::from_str(text(child(object, "data"), STUBS)).unwrap_or_default();
    let changed = stub_domains(known, stub)?;
    Ok(write(KUBE_DNS, object, STUBS, (!changed.is_empty()).then(|| Value::from(changed).to_string())))
}

/// The stub domains of kube-dns with ours, or without them. Ours are marked by a zone of their own that nobody asks for.
fn stub_domains(mut known: Map<String, Value>, stub: Option<&Stub>) -> Result<Map<String, Value>> {
    const MARK: &str = "landfall.invalid";
    let ours = known.remove(MARK).unwrap_or_default();
    known.retain(|_, to| ours.is_null() || *to != ours);
    let Some(stub) = stub else { return Ok(known) };
    for zone in stub.zones.iter().map(String::as_str).chain([MARK]) {
        if known.insert(zone.to_owned(), json!([stub.address])).is_some() {
            bail!("kube-dns has a stub domain {zone:?} already; take it out, or give --no-dns");
        }
    }
    Ok(known)
}

/// Whether a Corefile imports blocks from another ConfigMap.
fn imports(corefile: &str) -> bool {
    let mut lines = corefile.lines().map(str::trim);
    lines.any(|line| line.starts_with("import ") && line.ends_with("/*.server"))
}

/// A Corefile with our block.
fn with(corefile: &str, stub: &Stub) -> Result<String> {
    let mut corefile = without(corefile);
    taken(&corefile, Some(stub))?;
    let block = block(stub, &port(&corefile));
    // A last line without an end stays so: the break belongs to our part.
    let open = !corefile.is_empty() && !corefile.ends_with('\n');
    corefile.push_str(if open { "\n" } else { "" });
    let mark =
        if open { BEGIN.replacen("begin;", "begin, after an open line;", 1) } else { BEGIN.to_owned() };
    Ok(format!("{corefile}{mark}{block}{END}"))
}

/// A Corefile without our block, as it was before.
fn without(corefile: &str) -> String {
    let Some(from) = corefile.find("# landfall: begin") else { return corefile.to_owned() };
    let Some(length) = corefile[from..].find(END) else { return corefile.to_owned() };
    let (before, after) = (&corefile[..from], &corefile[from + length + END.len()..]);
    let open = corefile[from..].starts_with("# landfall: begin, after an open line");
    let before = if open { before.strip_suffix('\n').unwrap_or(before) } else { before };
    format!("{before}{after}")
}

/// Our block. No `loadbalance`, which would shuffle what is ordered; no `cache`, which would keep the dead alive: the edges are as
/// near as a cache.
fn block(stub: &Stub, port: &str) -> String {
    let keys: Vec<String> = stub.zones.iter().map(|zone| format!("{zone}{port}")).collect();
    format!("{} {{\n    errors\n    forward . {}\n}}\n", keys.join(" "), stub.address)
}

/// Fails if another block has one of our zones: CoreDNS would refuse the whole file.
fn taken(corefile: &str, stub: Option<&Stub>) -> Result<()> {
    let zones = stub.map(|stub| stub.zones.as_slice()).unwrap_or_default();
    let has = |key: &str| zones.iter().find(|zone| zone_of(key) == zone.to_ascii_lowercase());
    match keys(corefile).iter().find_map(|key| has(key)) {
        Some(zone) => bail!("CoreDNS has a block for {zone} already; take it out, or give --no-dns"),
        None => Ok(()),
    }
}

/// The port of the block that answers everything, as it is written there.
fn port(corefile: &str) -> String {
    let keys = keys(corefile);
    let root = keys.iter().find(|key| zone_of(key).is_empty());
    let port = root.and_then(|key| key.rsplit_once(':')).map(|(_, port)| port);
    port.filter(|port| port.bytes().all(|b| b.is_ascii_digit()))
        .map_or_else(String::new, |port| format!(":{port}"))
}

/// The zone of a block's key: without scheme, port and the dot at its end.
fn zone_of(key: &str) -> String {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    let zone = key.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    zone.map_or(key, |(zone, _)| zone).trim_end_matches('.').to_ascii_lowercase()
}

/// The keys of all blocks.
fn keys(corefile: &str) -> Vec<String> {
    let (mut depth, mut keys) = (0_usize, Vec::new());
    for line in corefile.lines() {
        let line = line.split('#').next().unwrap_or_default();
        for word in line.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
            match word {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                word if depth == 0 => {
                    // A snippet is no zone, and nor is what is imported.
                    let (word, opens) = word.strip_suffix('{').map_or((word, false), |word| (word, true));
                    keys.extend((!word.is_empty() && !word.starts_with('(')).then(|| word.to_owned()));
                    depth += usize::from(opens);
                }
                _ => {}
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBEADM: &str = ".:53 {\n    errors\n    kubernetes cluster.local in-addr.arpa ip6.arpa {\n       pods insecure\n    }\n    \
        forward . /etc/resolv.conf {\n       max_concurrent 1000\n    }\n    cache 30\n    reload\n    loadbalance\n}\n";

    fn stub(zones: &[&str]) -> Stub {
        Stub { zones: zones.iter().map(|zone| (*zone).to_owned()).collect(), address: "10.96.7.7".into() }
    }

    #[test]
    fn a_block_comes_and_goes_and_the_rest_stays() {
        let ours = stub(&["example.com", "clusterset.local"]);
        for before in
            [KUBEADM, KUBEADM.trim_end(), "", &format!("# mine\n{KUBEADM}other.org:53 {{\n  errors\n}}\n")]
        {
            let after = with(before, &ours).unwrap();
            assert!(after.starts_with(before), "{after}");
            assert_eq!(with(&after, &ours).unwrap(), after, "twice is once");
            assert_eq!(without(&after), before);
            // What others add behind it stays, too.
            assert_eq!(
                without(&format!("{after}more {{\n}}\n")).replace("more {\n}\n", "").trim_end(),
                before.trim_end()
            );
        }
        let after = with(KUBEADM, &ours).unwrap();
        assert!(
            after.ends_with(
                "example.com:53 clusterset.local:53 {\n    errors\n    forward . 10.96.7.7\n}\n# landfall: end\n"
            ),
            "{after}"
        );
        assert_eq!(without("# landfall: begin\nand no end"), "# landfall: begin\nand no end");
    }

    #[test]
    fn ports_and_zones_are_read() {
        let check = |corefile: &str, expected: &[&str], at: &str| {
            assert_eq!(keys(corefile), expected, "{corefile}");
            assert_eq!(port(corefile), at, "{corefile}");
        };
        check(KUBEADM, &[".:53"], ":53");
        check("(snip) {\n errors\n}\n.:8053 {\n import snip\n}\n", &[".:8053"], ":8053");
        check("# a.org {\ndns://b.org:5353, c.org. {\n}\n. {\n}\n", &["dns://b.org:5353", "c.org.", "."], "");
        for (corefile, zone) in
            [("Example.com:53 {\n}\n", "example.com"), ("dns://clusterset.local. {\n}\n", "clusterset.local")]
        {
            let error = with(corefile, &stub(&["example.com", "clusterset.local"])).unwrap_err().to_string();
            assert!(error.contains(zone) && error.contains("--no-dns"), "{error}");
        }
    }

    #[test]
    fn every_resolver_is_told_in_its_own_way() {
        let map =
            |key: &str, value: &str| json!({"metadata": {"resourceVersion": "7"}, "data": {key: value}});
        let ours = stub(&["example.com"]);
        let plain = map(COREFILE, KUBEADM);
        let Decision::Write { map: to, data, version } =
            decide(Some(&plain), None, None, Some(&ours)).unwrap()
        else {
            panic!("nothing is written")
        };
        assert_eq!((to, version.as_str()), (COREDNS, "7"));
        assert!(data[COREFILE].as_str().unwrap().contains("forward . 10.96.7.7"), "{data}");
        assert_eq!(decide(Some(&plain), None, None, None).unwrap(), Decision::Same);

        let importing = map(COREFILE, &format!("{KUBEADM}import custom/*.server\n"));
        let custom = json!({"metadata": {"resourceVersion": "8"}});
        let decision = decide(Some(&importing), Some(&custom), None, Some(&ours)).unwrap();
        let block = "example.com:53 {\n    errors\n    forward . 10.96.7.7\n}\n";
        let expected = Decision::Write { map: CUSTOM, data: json!({SERVER_KEY: block}), version: "8".into() };
        assert_eq!(decision, expected);

        let kube_dns = map(STUBS, r#"{"corp.org":["10.0.0.1"]}"#);
        let decision = decide(None, None, Some(&kube_dns), Some(&ours)).unwrap();
        let Decision::Write { data, .. } = &decision else { panic!("nothing is written") };
        let after = map(STUBS, data[STUBS].as_str().unwrap());
        assert!(data[STUBS].as_str().unwrap().contains(r#""example.com":["10.96.7.7"]"#), "{data}");
        let Decision::Write { data, .. } = decide(None, None, Some(&after), None).unwrap() else {
            panic!("it stays")
        };
        assert_eq!(data[STUBS], r#"{"corp.org":["10.0.0.1"]}"#);
        assert_eq!(decide(None, None, None, Some(&ours)).unwrap(), Decision::Unknown);
    }
}
