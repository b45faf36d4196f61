//! What is particular about Services in a federation. What they share with Kubernetes' is in `tests/data/rules`.

use super::*;

const FEDERATION: ServiceRules = ServiceRules { allocates: false };
const MEMBER: ServiceRules = ServiceRules { allocates: true };

fn service(spec: &Value) -> Value {
    let mut service = json!({"metadata": {"name": "s", "namespace": "n"}, "spec": spec});
    if spec.get("ports").is_none() {
        service["spec"]["ports"] = json!([{"port": 80}]);
    }
    service
}

fn created(rules: &ServiceRules, spec: &Value) -> (Value, String) {
    let mut object = service(spec);
    rules.default(&mut object);
    rules.prepare_create(&mut object);
    let mut errors = rules.validate(&object);
    errors.extend(rules.validate_create(&object));
    (object, if errors.is_empty() { String::new() } else { errors.summary() })
}

fn updated(rules: &ServiceRules, old: &Value, spec: &Value) -> (Value, String) {
    let mut old = service(old);
    rules.default(&mut old);
    rules.prepare_create(&mut old);
    let mut object = service(spec);
    rules.default(&mut object);
    rules.prepare_update(&mut object, &old);
    let mut errors = rules.validate_update(&object, &old);
    errors.extend(rules.validate(&object));
    (object, if errors.is_empty() { String::new() } else { errors.summary() })
}

#[test]
fn a_federated_service_has_no_cluster_ip() {
    let refused = format!("spec.clusterIP: Forbidden: {NO_CLUSTER_IP}");
    let (object, wrong) = created(&FEDERATION, &json!({}));
    assert_eq!(wrong, "");
    for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        assert_eq!(object["spec"].get(name), None, "{name}");
    }
    assert_eq!(created(&FEDERATION, &json!({"clusterIP": "10.0.0.1"})).1, refused);
    assert_eq!(created(&MEMBER, &json!({"clusterIP": "10.0.0.1"})).1, "");
    let (object, wrong) = created(&FEDERATION, &json!({"clusterIP": "None"}));
    assert_eq!((wrong.as_str(), &object["spec"]["clusterIPs"]), ("", &json!(["None"])));

    let given = json!({"clusterIP": "10.0.0.1"});
    assert_eq!(updated(&FEDERATION, &json!({}), &given).1, refused);
    assert_eq!(updated(&FEDERATION, &given, &given).1, "", "one that was there before stays");
    assert_eq!(updated(&FEDERATION, &given, &json!({})).0["spec"]["clusterIP"], "10.0.0.1");
}

#[test]
fn headless_stays_headless() {
    let none = json!({"clusterIP": "None"});
    let once = "spec.clusterIPs[0]: Invalid value: [\"None\"]: may not change once set";
    assert_eq!(updated(&FEDERATION, &json!({}), &none).1, once);
    assert_eq!(updated(&MEMBER, &json!({"clusterIP": "10.0.0.1"}), &none).1, once);
    let (object, wrong) = updated(&FEDERATION, &none, &json!({}));
    assert_eq!((wrong.as_str(), &object["spec"]["clusterIP"]), ("", &json!("None")));
}

#[test]
fn changes_of_type_drop_what_no_longer_fits() {
    let balancer = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "loadBalancerClass": "a/b",
        "healthCheckNodePort": 30_100, "ports": [{"port": 80, "nodePort": 30_200}]});
    let mut spec = balancer.clone();
    spec["type"] = json!("ClusterIP");
    spec["allocateLoadBalancerNodePorts"] = json!(true);
    let (object, wrong) = updated(&FEDERATION, &balancer, &spec);
    assert_eq!(wrong, "");
    assert_eq!(
        object["spec"],
        json!({"type": "ClusterIP", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]})
    );
}

#[test]
fn health_check_ports_are_the_members_business() {
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    assert_eq!(created(&FEDERATION, &spec).1, "");
    assert_eq!(created(&MEMBER, &spec).1, "spec.healthCheckNodePort: Required value");
}

#[test]
fn status_of_load_balancers() {
    let check = |ty: &str, ingress: Value, expected: &str| {
        let mut object = json!({"spec": {"type": ty}, "status": {"loadBalancer": {"ingress": [ingress]}}});
        Rules::default(&FEDERATION, &mut object);
        let errors = FEDERATION.validate_status(&object, &object);
        let found = if errors.is_empty() { String::new() } else { errors.summary() };
        assert_eq!(found, expected);
        object["status"]["loadBalancer"]["ingress"][0].clone()
    };
    check("LoadBalancer", json!({"hostname": "s.n.example.com"}), "");
    let shown = check("LoadBalancer", json!({"ip": "192.0.2.1"}), "");
    assert_eq!(shown["ipMode"], "VIP");
    check(
        "LoadBalancer",
        json!({"hostname": "192.0.2.1"}),
        "status.loadBalancer.ingress[0].hostname: Invalid value: \"192.0.2.1\": must be a DNS name, not an IP address",
    );
    check(
        "ClusterIP",
        json!({"hostname": "a.b"}),
        "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
    );
}

#[test]
fn warnings_say_what_is_ignored() {
    let object = service(&json!({"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP",
        "trafficDistribution": "PreferClose", "externalName": "x"}));
    assert_eq!(
        FEDERATION.warnings(&object),
        [
            "spec.SessionAffinity is ignored for headless services",
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ]
    );
}

proptest::proptest! {
    /// Whatever stands where something else is expected, nothing panics.
    #[test]
    fn odd_shapes_do_no_harm(at in 0_usize..12, what in 0_usize..5) {
        let names = ["ports", "clusterIP", "clusterIPs", "type", "ipFamilies", "externalIPs", "selector",
            "sessionAffinityConfig", "loadBalancerSourceRanges", "healthCheckNodePort", "sessionAffinity", "externalName"];
        let shapes = [json!(null), json!(-1), json!("x"), json!([1, "a", {}, null]), json!({"a": [1]})];
        let spec = json!({names[at]: shapes[what]});
        drop(created(&FEDERATION, &spec));
        drop(updated(&MEMBER, &spec, &json!({})));
        drop(updated(&FEDERATION, &json!({}), &spec));
    }
}
