//! What a member adds to objects before they are validated: addresses and ports of Services, and what Kubernetes'
//! admission plugins complete in Pods.
//!
//! Allocation looks at the state and at what was given out last. It goes round, so that two writes at once get
//! different addresses, and an address rests before it is given out again.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use landfall_api::field::{ErrorList, Path};
use landfall_api::{Kind, Reason, Status, meta, rules};
use landfall_apiserver::admission::Admission;
use landfall_apiserver::keys;
use landfall_store::Snapshot;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::ledger::Ledger;
use crate::address::Block;
use crate::controllers::read::{int, items, text};
use crate::luck::Luck;

/// Ports of nodes, as Kubernetes gives them out.
const NODE_PORTS: (i64, i64) = (30_000, 32_767);

/// The admission of a member.
pub struct MemberAdmission {
    block: Block,
    /// How long pods stay on a node in trouble unless they say otherwise.
    toleration_s: u64,
    luck: Arc<Luck>,
    next: Mutex<Next>,
}

/// Where allocation goes on.
struct Next {
    address: u32,
    port: i64,
    ledger: Option<Ledger>,
}

impl MemberAdmission {
    /// For a member with these addresses, whose pods stay so long on a node in trouble, and whose uids follow from this luck.
    pub const fn new(block: Block, eviction: Duration, luck: Arc<Luck>) -> Self {
        let toleration_s = eviction.as_secs();
        Self {
            block,
            toleration_s,
            luck,
            next: Mutex::new(Next { address: 1, port: NODE_PORTS.0, ledger: None }),
        }
    }
}

impl Admission for MemberAdmission {
    fn create(&self, state: &Snapshot, kind: &Kind, object: &mut Value) -> Result<(), Status> {
        match (&*kind.group, &*kind.kind) {
            ("", "Service") => self.allocate(state, kind, object),
            ("", "Pod") => {
                complete_pod(object, self.toleration_s);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn update(&self, state: &Snapshot, kind: &Kind, object: &mut Value, old: &Value) -> Result<(), Status> {
        match (&*kind.group, &*kind.kind) {
            // What it holds already nobody else can have got meanwhile.
            ("", "Service") if is_complete(object) && same_holdings(object, old) => Ok(()),
            ("", "Service") => self.allocate(state, kind, object),
            _ => Ok(()),
        }
    }

    fn luck(&self, about: &str) -> Option<u128> {
        // There are many, and no two have the same name.
        let event = about.starts_with("core/events/") || about.starts_with("events.k8s.io/");
        Some(if event { self.luck.once(about) } else { self.luck.draw(about) })
    }
}

// === Services ===

/// What other Services than this one hold.
struct Taken<'a> {
    ledger: &'a Ledger,
    own: &'a str,
}

/// Whether a Service has an address, and ports where it needs them.
fn is_complete(service: &Value) -> bool {
    let kind = text(service, "/spec/type");
    let ports = items(service, "/spec/ports").iter().all(|port| int(port, "/nodePort") != 0);
    kind != "ExternalName"
        && !text(service, "/spec/clusterIP").is_empty()
        && !items(service, "/spec/clusterIPs").is_empty()
        && (kind == "ClusterIP" || ports)
}

/// Whether two versions of a Service hold the same.
fn same_holdings(one: &Value, other: &Value) -> bool {
    let same = |pointer: &str| one.pointer(pointer) == other.pointer(pointer);
    ["/spec/type", "/spec/clusterIP", "/spec/clusterIPs", "/spec/ipFamilies", "/spec/ipFamilyPolicy"]
        .into_iter()
        .chain(["/spec/externalTrafficPolicy", "/spec/healthCheckNodePort"])
        .all(same)
        && ports_of(one) == ports_of(other)
}

impl MemberAdmission {
    /// Gives a Service what it needs and does not have.
    fn allocate(&self, state: &Snapshot, kind: &Kind, service: &mut Value) -> Result<(), Status> {
        if text(service, "/spec/type") == "ExternalName" {
            return Ok(());
        }
        let own = keys::object("", "services", meta::namespace(service), meta::name(service));
        let mut next = self.next.lock();
        let mut ledger = next.ledger.take().unwrap_or_default();
        ledger.refresh(state);
        let taken = Taken { ledger: &ledger, own: &own };
        let mut errors = ErrorList::new();
        self.allocate_address(service, &taken, &mut next, &mut errors);
        let mut done = Ok(());
        if matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer") {
            allocate_ports(service, &taken, &mut next, &mut errors);
            done = allocate_health_check(service, &taken, &mut next);
        }
        next.ledger = Some(ledger);
        done?;
        if errors.is_empty() { Ok(()) } else { Err(rules::refuse(kind, service, &errors)) }
    }

    fn allocate_address(
        &self,
        service: &mut Value,
        taken: &Taken<'_>,
        next: &mut Next,
        errors: &mut ErrorList,
    ) {
        let path = Path::new("spec");
        let wanted = text(service, "/spec/clusterIP").to_owned();
        let selects =
            service.pointer("/spec/selector").and_then(Value::as_object).is_some_and(|s| !s.is_empty());
        let range = self.block.services();
        let refuse = |why: String, errors: &mut ErrorList| {
            errors.invalid(
                &path.child("clusterIPs"),
                json!([wanted]),
                format!("failed to allocate IP {wanted}: {why}"),
            );
        };
        let address = match wanted.parse::<Ipv4Addr>() {
            _ if wanted == "None" => wanted.clone(),
            Ok(ip) if !range.contains(ip) => {
                return refuse(
                    format!(
                        "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}"
                    ),
                    errors,
                );
            }
            Ok(_) if taken.ledger.has_address(taken.own, &wanted) => {
                return refuse("provided IP is already allocated".into(), errors);
            }
            Ok(_) => wanted.clone(),
            // What is no address is refused by validation.
            Err(_) if !wanted.is_empty() => return,
            Err(_) => {
                let free = (0..range.count()).find_map(|step| {
                    // The first address is nobody's.
                    let index = 1 + (next.address - 1 + step) % (range.count() - 1);
                    let address =
                        range.get(index).filter(|a| !taken.ledger.has_address(taken.own, &a.to_string()))?;
                    Some((index, address))
                });
                let Some((index, address)) = free else {
                    return errors.invalid(
                        &path.child("clusterIPs"),
                        json!([]),
                        "failed to allocate a serviceIP: range is full",
                    );
                };
                next.address = index + 1;
                address.to_string()
            }
        };
        let spec = meta::child_mut(service, "spec");
        // A headless Service whose endpoints are made by hand may have both families.
        let both = address == "None" && !selects;
        default(spec, "ipFamilies", if both { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
        default(spec, "ipFamilyPolicy", json!(if both { "RequireDualStack" } else { "SingleStack" }));
        spec.insert("clusterIPs".into(), json!([address]));
        spec.insert("clusterIP".into(), json!(address));
    }
}

fn default(spec: &mut Map<String, Value>, field: &str, value: Value) {
    let absent = spec.get(field).is_none_or(|v| v.is_null() || v.as_array().is_some_and(Vec::is_empty));
    if absent {
        spec.insert(field.into(), value);
    }
}

fn allocate_ports(service: &mut Value, taken: &Taken<'_>, next: &mut Next, errors: &mut ErrorList) {
    let balancer = text(service, "/spec/type") == "LoadBalancer";
    let wants = service.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&json!(false));
    if balancer && !wants {
        return;
    }
    let spec = Path::new("spec");
    let path = spec.child("ports");
    let mut own: BTreeSet<(i64, String)> = BTreeSet::new();
    let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    for (at, port) in ports.into_iter().flatten().enumerate() {
        let (number, protocol) = (int(port, "/nodePort"), text(port, "/protocol").to_owned());
        let here = path.index(at).child("nodePort").to_string();
        if number != 0 {
            let key = (number, protocol);
            if !(NODE_PORTS.0..=NODE_PORTS.1).contains(&number) {
                let why = format!(
                    "provided port is not in the valid range. The range of valid ports is {}-{}",
                    NODE_PORTS.0, NODE_PORTS.1
                );
                errors.invalid(&Path::new(&here), number, why);
            } else if taken.ledger.has_port(taken.own, &key) {
                errors.invalid(&Path::new(&here), number, "provided port is already allocated");
            }
            own.insert(key);
            continue;
        }
        let Some(free) = free_port(taken, &own, next) else {
            errors.invalid(&Path::new(&here), 0, "failed to allocate a nodePort: range is full");
            return;
        };
        own.insert((free, protocol));
        port["nodePort"] = json!(free);
    }
}

/// The next port of nodes that nobody holds, for any protocol.
fn free_port(taken: &Taken<'_>, own: &BTreeSet<(i64, String)>, next: &mut Next) -> Option<i64> {
    let size = NODE_PORTS.1 - NODE_PORTS.0 + 1;
    let mut numbers = (0..size).map(|step| NODE_PORTS.0 + (next.port - NODE_PORTS.0 + step) % size);
    let held = |number: i64| own.iter().any(|(port, _)| *port == number);
    let free = numbers.find(|number| !taken.ledger.has_number(taken.own, *number) && !held(*number))?;
    next.port = free + 1;
    Some(free)
}

/// A load balancer that goes only to nodes with endpoints asks the nodes at a port of its own.
fn allocate_health_check(service: &mut Value, taken: &Taken<'_>, next: &mut Next) -> Result<(), Status> {
    let balancer = text(service, "/spec/type") == "LoadBalancer";
    if !balancer || text(service, "/spec/externalTrafficPolicy") != "Local" {
        return Ok(());
    }
    let own = ports_of(service);
    let wanted = int(service, "/spec/healthCheckNodePort");
    if wanted != 0 {
        let why = if !(NODE_PORTS.0..=NODE_PORTS.1).contains(&wanted) {
            format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                NODE_PORTS.0, NODE_PORTS.1
            )
        } else if taken.ledger.has_port(taken.own, &(wanted, "TCP".to_owned())) {
            "provided port is already allocated".to_owned()
        } else {
            return Ok(());
        };
        let message = format!("failed to allocate requested HealthCheck NodePort {wanted}: {why}");
        // Kubernetes has no reason for this one.
        return Err(Status::new(Reason::Unknown, message));
    }
    let full = || Status::new(Reason::Unknown, "failed to allocate a HealthCheck NodePort 0: range is full");
    let free = free_port(taken, &own, next).ok_or_else(full)?;
    meta::child_mut(service, "spec").insert("healthCheckNodePort".into(), json!(free));
    Ok(())
}

/// The ports of nodes that a Service holds, its health check's included, each with its protocol.
pub(super) fn ports_of(service: &Value) -> BTreeSet<(i64, String)> {
    let ports = items(service, "/spec/ports").iter();
    let ports = ports.map(|port| (int(port, "/nodePort"), text(port, "/protocol").to_owned()));
    ports.chain([(int(service, "/spec/healthCheckNodePort"), "TCP".to_owned())]).collect()
}

// === Pods ===

/// What the admission plugins ServiceAccount, Priority and DefaultTolerationSeconds complete.
fn complete_pod(pod: &mut Value, toleration_s: u64) {
    let spec = meta::child_mut(pod, "spec");
    let account = spec.get("serviceAccountName").and_then(Value::as_str).unwrap_or("");
    let account = if account.is_empty() { "default".to_owned() } else { account.to_owned() };
    spec.insert("serviceAccountName".into(), json!(account));
    spec.insert("serviceAccount".into(), json!(account));
    let numbered = spec.get("priority").is_some_and(Value::is_number);
    if !numbered {
        let priority = match spec.get("priorityClassName").and_then(Value::as_str) {
            Some("system-node-critical") => 2_000_001_000_i64,
            Some("system-cluster-critical") => 2_000_000_000,
            _ => 0,
        };
        spec.insert("priority".into(), json!(priority));
    }
    default(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        let Some(tolerations) = tolerations.as_array_mut() else { return };
        let says = |t: &Value| {
            let (own, effect) = (text(t, "/key"), text(t, "/effect"));
            (own == key || own.is_empty()) && matches!(effect, "NoExecute" | "")
        };
        if !tolerations.iter().any(says) {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": toleration_s,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use landfall_store::{Store, embedded};

    use super::*;

    /// Services by name, as admission left them or what it said.
    struct Desk {
        admission: MemberAdmission,
        kind: Kind,
        store: Arc<dyn Store>,
    }

    impl Desk {
        fn new() -> Self {
            let block = Block::all().next().unwrap();
            let kind = landfall_api::kinds::member().into_iter().find(|k| k.kind == "Service").unwrap();
            let store = landfall_store::open_memory(embedded::Config::new("")).unwrap();
            Self {
                admission: MemberAdmission::new(block, Duration::from_secs(300), Arc::new(Luck::new(7))),
                kind,
                store,
            }
        }

        fn address(&self, index: u32) -> String {
            self.admission.block.services().get(index).unwrap().to_string()
        }

        async fn create(&self, name: &str, spec: Value) -> Result<Value, String> {
            let mut object = json!({"metadata": {"name": name, "namespace": "a"}, "spec": spec});
            let admitted = self.admission.create(&self.store.snapshot(), &self.kind, &mut object);
            admitted.map_err(|status| status.message)?;
            let key = keys::object("", "services", "a", name);
            self.store.create(&key, object.to_string().into(), None).await.unwrap();
            Ok(object["spec"].take())
        }
    }

    #[tokio::test]
    async fn services_get_addresses_of_their_own() {
        let desk = Desk::new();
        let plain = || json!({"type": "ClusterIP", "selector": {"app": "x"}, "ports": [{"port": 80, "protocol": "TCP"}]});
        let first = desk.create("first", plain()).await.unwrap();
        assert_eq!(first["clusterIP"], json!(desk.address(1)));
        assert_eq!(first["clusterIPs"], json!([desk.address(1)]));
        assert_eq!(
            (&first["ipFamilies"], &first["ipFamilyPolicy"]),
            (&json!(["IPv4"]), &json!("SingleStack"))
        );
        assert_eq!(desk.create("second", plain()).await.unwrap()["clusterIP"], json!(desk.address(2)));
        let asks = |ip: String| json!({"type": "ClusterIP", "clusterIP": ip});
        assert_eq!(
            desk.create("asks", asks(desk.address(9))).await.unwrap()["clusterIP"],
            json!(desk.address(9))
        );
        let taken = desk.create("taken", asks(desk.address(9))).await.unwrap_err();
        assert!(taken.ends_with("provided IP is already allocated"), "{taken}");
        let outside = desk.create("outside", asks("10.0.0.1".into())).await.unwrap_err();
        assert!(outside.contains("is not in the valid range"), "{outside}");
        let headless = desk.create("headless", asks("None".into())).await.unwrap();
        assert_eq!(headless["ipFamilyPolicy"], json!("RequireDualStack"));
        let alias = desk.create("alias", json!({"type": "ExternalName"})).await.unwrap();
        assert!(alias.get("clusterIP").is_none());
        desk.store.close().await;
    }

    #[tokio::test]
    async fn services_get_ports_of_nodes() {
        let desk = Desk::new();
        let ports = |numbers: &[i64]| -> Vec<Value> {
            numbers.iter().map(|n| json!({"port": 80, "protocol": "TCP", "nodePort": n})).collect()
        };
        let node = |numbers: &[i64]| json!({"type": "NodePort", "ports": ports(numbers)});
        let first = desk.create("first", node(&[0, 30_001, 0])).await.unwrap();
        let given: Vec<i64> = items(&first, "/ports").iter().map(|p| int(p, "/nodePort")).collect();
        assert_eq!(given, [30_000, 30_001, 30_002]);
        let taken = desk.create("taken", node(&[30_001])).await.unwrap_err();
        assert!(
            taken
                .contains("spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated"),
            "{taken}"
        );
        let outside = desk.create("outside", node(&[80])).await.unwrap_err();
        assert!(outside.contains("The range of valid ports is 30000-32767"), "{outside}");
        let mut without = node(&[0]);
        without["type"] = json!("LoadBalancer");
        without["allocateLoadBalancerNodePorts"] = json!(false);
        let without = desk.create("without", without).await.unwrap();
        assert_eq!(int(&without, "/ports/0/nodePort"), 0);
        desk.store.close().await;
    }

    #[tokio::test]
    async fn load_balancers_that_stay_local_get_a_port_to_be_asked_at() {
        let desk = Desk::new();
        let local = |port: i64| {
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": port,
                "ports": [{"port": 80, "protocol": "TCP"}]})
        };
        let first = desk.create("first", local(0)).await.unwrap();
        assert_eq!((int(&first, "/ports/0/nodePort"), int(&first, "/healthCheckNodePort")), (30_000, 30_001));
        assert_eq!(int(&desk.create("asks", local(30_500)).await.unwrap(), "/healthCheckNodePort"), 30_500);
        let said = desk.create("taken", local(30_001)).await.unwrap_err();
        let want =
            "failed to allocate requested HealthCheck NodePort 30001: provided port is already allocated";
        assert_eq!(said, want);
        desk.store.close().await;
    }

    #[test]
    fn pods_are_completed() {
        let mut pod =
            json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}});
        complete_pod(&mut pod, 30);
        assert_eq!(pod["spec"]["serviceAccountName"], json!("default"));
        assert_eq!(pod["spec"]["priority"], json!(0));
        let tolerations = items(&pod, "/spec/tolerations");
        assert_eq!(tolerations.len(), 2, "what it says itself stays");
        assert_eq!(tolerations[1]["tolerationSeconds"], json!(30));
    }
}
