//! HTTPS on real clusters: a Secret and an Ingress at the federation, and what clients meet at the edges of a cluster, whose pods are not to
//! be asked.

use std::path::Path;
use std::process::{Command, Stdio};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{CertificateParams, DnType, KeyPair, PublicKeyData as _};

use crate::carries::{ENTRANCE, NEAR};
use crate::federated::{HUB, becomes};
use crate::names::Names;
use crate::support::{run, skip};

const HOST: &str = "secure.my-domain.com";

const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: secure}
spec:
  tls: [{hosts: [secure.my-domain.com], secretName: secure}]
  rules:
  - host: secure.my-domain.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: nginx, port: {number: 80}}}}]}
";

/// A certificate that vouches for itself, and its key, PEM; and the browser's name for that key.
struct Pair {
    certificate: String,
    key: String,
    pin: String,
}

impl Pair {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, HOST);
        let certificate = params.self_signed(&key).unwrap().pem();
        let pin = BASE64.encode(digest(&SHA256, &key.subject_public_key_info()));
        Self { certificate, key: key.serialize_pem(), pin }
    }

    fn secret(&self) -> String {
        let (certificate, key) = (BASE64.encode(&self.certificate), BASE64.encode(&self.key));
        format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: secure}}, type: kubernetes.io/tls, data: {{tls.crt: {certificate}, tls.key: {key}}}}}"
        )
    }
}

/// curl and a browser come in over TLS; the certificate is exchanged, and whoever comes meanwhile is served.
pub(crate) fn clients_come_over_tls(names: &Names) {
    let directory = tempfile::tempdir().unwrap();
    let at = names.entrance(ENTRANCE).unwrap();
    let (first, second) = (Pair::new(), Pair::new());
    names.federation.create(HUB, &first.secret());
    names.federation.create(HUB, INGRESS);
    let trusted = directory.path().join("trusted.pem");
    std::fs::write(&trusted, format!("{}{}", first.certificate, second.certificate)).unwrap();
    let curl = |url: &str, options: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail", "--noproxy", "*", "--max-time", "30", "--cacert"]).arg(&trusted);
        for port in [80, 443] {
            command.args(["--connect-to", &format!("{HOST}:{port}:{at}:{port}")]);
        }
        run(command.args(options).arg(url))
    };
    let secure = format!("https://{HOST}/");
    becomes("HTTPS is answered by the closest cluster that may be asked", &(true, true), || {
        let said = curl(&secure, &["-w", "%{http_version}"]).unwrap_or_default();
        (said.contains(&format!("\"cluster\": \"{NEAR}\"")), said.ends_with("\n2"))
    });
    let told = ["-o", "/dev/null", "-w", "%{http_code} %{redirect_url}"];
    assert_eq!(curl(&format!("http://{HOST}/a?b"), &told), Ok(format!("308 https://{HOST}/a?b")));
    browser(&at, &first, directory.path());

    let shown = || curl(&secure, &["-o", "/dev/null", "-w", "%{certs}"]).unwrap();
    assert!(shown().contains(first.certificate.trim()));
    let file = directory.path().join("secret.yaml");
    std::fs::write(&file, second.secret()).unwrap();
    names.federation.kubectl(HUB, &format!("apply -f {}", file.display()));
    becomes("the new certificate is shown", &true, || shown().contains(second.certificate.trim()));
    // Both edges of the cluster have it now, or will: each is asked some of the time.
    for _ in 0..10 {
        drop(shown());
    }
}

/// Headless Chromium, which finds the host at the edge and trusts its key.
fn browser(at: &str, pair: &Pair, directory: &Path) {
    if Command::new("chromium").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("https: a browser", "chromium not found");
    }
    let load = || {
        let mut command = Command::new("chromium");
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-proxy-server",
            "--disable-background-networking",
            "--virtual-time-budget=5000",
            "--dump-dom",
        ]);
        command.arg(format!("--user-data-dir={}", directory.join("browser").display()));
        command.arg(format!("--host-resolver-rules=MAP {HOST}:443 {at}:443"));
        command.arg(format!("--ignore-certificate-errors-spki-list={}", pair.pin));
        run(command.arg(format!("https://{HOST}/page")).stderr(Stdio::null())).unwrap_or_default()
    };
    becomes("a browser shows what a pod says", &true, || {
        let page = load();
        page.contains(&format!("\"cluster\": \"{NEAR}\"")) && page.contains("/page")
    });
}
