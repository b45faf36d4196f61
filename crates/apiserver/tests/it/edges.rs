//! How edges come in, what they may do, and how they are shut out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use crate::support::{Answer, Asker, Hub};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const LANDFALL: &str = "/apis/landfall.dev/v1alpha1";
const TOKEN: &str = "abcdef.0123456789abcdef";
const SOON: &str = "2999-01-01T00:00:00Z";

/// A key, and a request for a certificate that says what edges' certificates say.
struct Newcomer {
    key: KeyPair,
    request: Value,
}

impl Newcomer {
    fn new(edge: &str, cluster: &str) -> Self {
        Self::of(&format!("system:landfall:edge:{edge}"), "system:landfall:edges", cluster)
    }

    fn of(name: &str, group: &str, cluster: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "edge-", "annotations": {"landfall.dev/cluster": cluster}},
            "spec": {
                "request": STANDARD.encode(pem), "signerName": "landfall.dev/edge",
                "usages": ["client auth", "digital signature"], "username": "system:admin",
            },
        });
        Self { key, request }
    }

    /// Asks for the certificate; the request once something has become of it.
    async fn ask(&self, asker: &Asker) -> Value {
        let made = asker.post(REQUESTS, &self.request).await.ok();
        let path = format!("{REQUESTS}/{}", made["metadata"]["name"].as_str().unwrap());
        asker.until(&path, "settled", |answer| is_settled(&answer.body)).await.ok()
    }

    /// Comes in; asks with the certificate from then on.
    async fn enter(&self, hub: &Hub, asker: &Asker) -> Asker {
        let settled = self.ask(asker).await;
        let certificate = settled["status"]["certificate"].as_str();
        let certificate = certificate.unwrap_or_else(|| panic!("no certificate: {settled}"));
        let pem = String::from_utf8(STANDARD.decode(certificate).unwrap()).unwrap();
        hub.with_certificate(&pem, &self.key.serialize_pem()).await
    }
}

fn is_settled(request: &Value) -> bool {
    let has = |kind: &str| {
        request["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(|c| c["type"] == kind))
    };
    request["status"]["certificate"].is_string() || has("Denied") || has("Failed")
}

/// Why a request was not granted.
fn refusal(request: &Value) -> &str {
    request["status"]["conditions"][0]["message"].as_str().unwrap_or_else(|| panic!("granted: {request}"))
}

/// A hub with the clusters `a` and `b`, and a Secret for [`TOKEN`] with further fields.
async fn hub(more: Value) -> Hub {
    let hub = Hub::start().await;
    for name in ["a", "b"] {
        let cluster = json!({"metadata": {"name": name}, "spec": {"endpoints": [{"server": "https://x"}]}});
        let mut object = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Cluster"});
        object.as_object_mut().unwrap().extend(cluster.as_object().unwrap().clone());
        hub.admin.post(&format!("{LANDFALL}/clusters"), &object).await.ok();
    }
    token(&hub.admin, TOKEN, more).await;
    hub
}

async fn token(admin: &Asker, token: &str, more: Value) {
    let (id, secret) = token.split_once('.').unwrap();
    let mut data = json!({
        "token-id": id, "token-secret": secret, "expiration": SOON, "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:landfall:edges",
    });
    data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}")}, "stringData": data,
    });
    admin.post("/api/v1/namespaces/kube-system/secrets", &object).await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_becomes_a_certificate_with_few_rights() {
    let hub = hub(json!({})).await;
    let newcomer = hub.with_token(TOKEN).await;
    let edge = Newcomer::new("e1", "a").enter(&hub, &newcomer).await;
    let other = Newcomer::new("e2", "b").enter(&hub, &newcomer).await;
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let me = edge.post(who, &review).await.ok()["status"]["userInfo"].clone();
    let own = edge.get(&format!("{LANDFALL}/edges/e1")).await.ok();
    assert_eq!(me["username"], "system:landfall:edge:e1");
    assert_eq!(me["uid"], own["metadata"]["uid"]);
    assert_eq!(own["spec"]["cluster"], "a");
    assert_eq!(own["metadata"]["annotations"]["landfall.dev/bootstrap-token"], "abcdef");

    let status = json!({"status": {"votes": [{"target": "a/default/web:80", "up": true}]}});
    let path = format!("{LANDFALL}/edges/e1/status");
    assert_eq!(edge.patch("merge", &path, &status).await.ok()["status"], status["status"]);
    let spec = json!({"spec": {"peerAddress": "192.0.2.1:7946"}});
    edge.patch("merge", &format!("{LANDFALL}/edges/e1"), &spec).await.ok();
    assert!(edge.get(&format!("{LANDFALL}/trafficplans")).await.names().is_empty());

    let forbidden = |answer: Answer| answer.refused(403, "Forbidden");
    for asker in [&edge, &newcomer] {
        forbidden(asker.patch("merge", &format!("{LANDFALL}/edges/e2/status"), &status).await);
        forbidden(asker.get(&format!("{LANDFALL}/edges/e2")).await);
        forbidden(asker.get(&format!("{LANDFALL}/edges")).await);
        forbidden(asker.delete(&format!("{LANDFALL}/edges/e1")).await);
        forbidden(asker.get(&format!("{LANDFALL}/clusters")).await);
        forbidden(asker.get("/api/v1/secrets").await);
        forbidden(asker.get("/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef").await);
        forbidden(asker.get("/api/v1/services").await);
        forbidden(asker.get("/api/v1/namespaces").await);
        forbidden(asker.get(REQUESTS).await);
        let plan = json!({"metadata": {"name": "p"}, "spec": {"targetRef": {"name": "x"}}});
        forbidden(asker.post(&format!("{LANDFALL}/namespaces/default/trafficplans"), &plan).await);
    }
    forbidden(newcomer.get(&format!("{LANDFALL}/trafficplans")).await);
    let theirs = hub.admin.get(REQUESTS).await.ok()["items"].as_array().unwrap().clone();
    for request in &theirs {
        // Both were asked for with the token, so they are the token's.
        forbidden(edge.get(&format!("{REQUESTS}/{}", request["metadata"]["name"].as_str().unwrap())).await);
        assert_eq!(request["spec"]["username"], "system:bootstrap:abcdef");
    }
    let moved =
        edge.patch("merge", &format!("{LANDFALL}/edges/e1"), &json!({"spec": {"cluster": "b"}})).await;
    assert!(forbidden(moved).contains("an edge may not change its cluster"));
    drop(other);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edge_renews_itself_until_it_is_shut_out() {
    let hub = hub(json!({})).await;
    let newcomer = hub.with_token(TOKEN).await;
    let first = Newcomer::new("e1", "a").enter(&hub, &newcomer).await;
    let edge = Newcomer::new("e1", "a").enter(&hub, &first).await;
    let refused = Newcomer::new("e2", "a").ask(&first).await;
    assert_eq!(refusal(&refused), "an edge may ask for its own certificate only");

    let mut watch = edge.watch(&format!("{LANDFALL}/trafficplans?watch=1")).await;
    let mut patient = hub.admin.watch(&format!("{LANDFALL}/trafficplans?watch=1")).await;
    // A heartbeat ends nothing.
    let heartbeat = json!({"status": {"heartbeatTime": "2026-01-01T00:00:00.000000Z"}});
    edge.patch("merge", &format!("{LANDFALL}/edges/e1/status"), &heartbeat).await.ok();
    let plan = json!({
        "apiVersion": "landfall.dev/v1alpha1", "kind": "TrafficPlan", "metadata": {"name": "p"},
        "spec": {"targetRef": {"kind": "Service", "name": "x"}},
    });
    hub.admin.post(&format!("{LANDFALL}/namespaces/default/trafficplans"), &plan).await.ok();
    watch.expect(&["ADDED p"]).await;
    hub.admin.delete(&format!("{LANDFALL}/edges/e1")).await.ok();
    assert_eq!(watch.next().await, None, "its watch goes on");
    patient.expect(&["ADDED p"]).await;
    for asker in [&first, &edge] {
        asker.get(&format!("{LANDFALL}/trafficplans")).await.refused(401, "Unauthorized");
    }
    // An edge of the same name is another one.
    let again = Newcomer::new("e1", "a").enter(&hub, &newcomer).await;
    again.get(&format!("{LANDFALL}/edges/e1")).await.ok();
    edge.get(&format!("{LANDFALL}/edges/e1")).await.refused(401, "Unauthorized");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_come_in() {
    let hub = hub(json!({"cluster": "a"})).await;
    let newcomer = hub.with_token(TOKEN).await;
    let denied = async |edge: &Newcomer, why: &str| {
        let settled = edge.ask(&newcomer).await;
        assert!(refusal(&settled).contains(why), "{settled}");
    };
    denied(&Newcomer::new("e1", "b"), "the token is for edges of \"a\", not of \"b\"").await;
    denied(&Newcomer::of("system:admin", "system:masters", "a"), "common name must be").await;
    Newcomer::new("e1", "a").enter(&hub, &newcomer).await;
    denied(&Newcomer::new("e1", "a"), "an edge that is alive is called \"e1\"").await;

    token(&hub.admin, "expire.0123456789abcdef", json!({"expiration": "2020-01-01T00:00:00Z"})).await;
    token(&hub.admin, "signin.0123456789abcdef", json!({"usage-bootstrap-authentication": "false"})).await;
    for bad in [
        "expire.0123456789abcdef",
        "signin.0123456789abcdef",
        "abcdef.fedcba9876543210",
        "nobody.0123456789abcdef",
    ] {
        hub.with_token(bad).await.get("/version").await.refused(401, "Unauthorized");
    }
    // Tokens of other bootstrappers open nothing here.
    token(&hub.admin, "others.0123456789abcdef", json!({"auth-extra-groups": "system:bootstrappers:nodes"}))
        .await;
    let other = hub.with_token("others.0123456789abcdef").await;
    other.post(REQUESTS, &Newcomer::new("e3", "a").request).await.refused(403, "Forbidden");
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_served_as_kubernetes_serves_them() {
    let hub = hub(json!({})).await;
    let mut edge = Newcomer::new("e9", "b");
    edge.request["metadata"]["name"] = json!("by-hand");
    // The administrator is no bootstrapper: somebody has to approve.
    let made = hub.admin.post(REQUESTS, &edge.request).await.ok();
    assert_eq!(made["spec"]["username"], "landfall-admin");
    assert_eq!(made["status"], json!({}));
    let table = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let row = async || {
        let table = hub.admin.send("GET", &format!("{REQUESTS}/by-hand"), &table, "").await.ok();
        let mut cells = table["rows"][0]["cells"].as_array().unwrap().clone();
        cells.remove(1);
        json!(cells)
    };
    assert_eq!(row().await, json!(["by-hand", "landfall.dev/edge", "landfall-admin", "<none>", "Pending"]));

    let mut sneaky = made.clone();
    sneaky["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}]});
    let path = format!("{REQUESTS}/by-hand");
    hub.admin.put(&format!("{path}/status"), &sneaky).await.refused(422, "Invalid");
    sneaky["spec"]["username"] = json!("somebody");
    let unchanged = hub.admin.put(&path, &sneaky).await.ok();
    assert_eq!((&unchanged["status"], &unchanged["spec"]), (&json!({}), &made["spec"]));
    let approved = hub.admin.put(&format!("{path}/approval"), &sneaky).await.ok();
    assert!(approved["status"]["conditions"][0]["lastUpdateTime"].is_string());
    let settled = hub.admin.until(&path, "signed", |answer| is_settled(&answer.body)).await.ok();
    assert_eq!(settled["spec"], made["spec"]);
    assert_eq!(
        row().await,
        json!(["by-hand", "landfall.dev/edge", "landfall-admin", "<none>", "Approved,Issued"])
    );
    hub.admin.get(&format!("{LANDFALL}/edges/e9")).await.ok();

    let mut bad = edge.request.clone();
    bad["metadata"]["name"] = json!("bad");
    bad["spec"]["request"] = json!("bm90IGEgcmVxdWVzdA==");
    let said = hub.admin.post(REQUESTS, &bad).await.refused(422, "Invalid");
    assert!(said.contains("PEM block type must be CERTIFICATE REQUEST"), "{said}");

    // Who may approve in general may not for every signer.
    let role = json!({
        "metadata": {"name": "approver"},
        "rules": [{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/approval"],
            "verbs": ["update"]}],
    });
    let binding = json!({
        "metadata": {"name": "approver"}, "subjects": [{"kind": "User", "name": "jane"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "approver"},
    });
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    hub.admin.post(&format!("{RBAC}/clusterroles"), &role).await.ok();
    hub.admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.ok();
    let jane = hub.with_token("jane-token").await;
    let said = jane.put(&format!("{path}/approval"), &settled).await.refused(403, "Forbidden");
    assert!(
        said.contains("user not permitted to approve requests with signerName \"landfall.dev/edge\""),
        "{said}"
    );
    hub.stop().await;
}
