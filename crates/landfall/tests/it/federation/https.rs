//! HTTPS as people meet it: a Secret, an Ingress, and curl and a browser at an edge.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData as _};

use super::{becomes, playground};
use crate::support::{Playground, find, skip, text};

const HOST: &str = "shop.example.com";
/// Where clients come in.
const ENTRANCE: &str = "us-east";
/// What its pods say of themselves.
const BY_ENTRANCE: &str = "\"cluster\": \"us-east\"";
/// How often the certificate is exchanged while clients ask.
const ROTATIONS: usize = 3;
/// Requests on one connection that show that it goes on.
const SOME: usize = 50;

/// An authority, as a company has one.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, PEM, and the browser's name for that key.
struct Pair {
    certificate: String,
    key: String,
    pin: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn sign(&self, name: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let pin = BASE64.encode(digest(&SHA256, &key.subject_public_key_info()));
        Pair { certificate, key: key.serialize_pem(), pin }
    }
}

/// A shop over HTTPS, and who asks there.
struct Shop {
    playground: Playground,
    authority: Authority,
    /// The file with the authority.
    trusted: String,
}

impl Shop {
    /// A playground with pods of a shop, if there is curl to ask with.
    fn open(suite: &str, base: &Path) -> Option<Self> {
        if find("curl").is_none() {
            skip(suite, "curl not found");
            return None;
        }
        let playground = playground(suite, base)?;
        playground.kubectl_ok("create deployment web --image=echo --replicas=3");
        playground.kubectl_ok("expose deployment web --port=8080");
        let authority = Authority::new();
        let trusted = write(base, "authority.pem", &authority.pem);
        Some(Self { playground, authority, trusted })
    }

    /// Gives it a new certificate.
    fn certify(&self) -> Pair {
        let pair = self.authority.sign(HOST);
        let (certificate, key) = (BASE64.encode(&pair.certificate), BASE64.encode(&pair.key));
        self.playground.give(&format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: shop-tls}}, type: kubernetes.io/tls, data: {{tls.crt: {certificate}, tls.key: {key}}}}}"
        ));
        pair
    }

    /// Opens it, with annotations.
    fn ingress(&self, annotations: &str) {
        self.playground.give(&format!(
            "{{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: shop, annotations: {{{annotations}}}}}, spec: {{
              tls: [{{hosts: [{HOST}], secretName: shop-tls}}],
              rules: [{{host: {HOST}, http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: web, port: {{number: 8080}}}}}}}}]}}}}]}}}}"
        ));
    }

    /// Where the edge speaks HTTPS: address and port.
    fn at(&self) -> (String, String) {
        let addresses = self.playground.addresses();
        let edges = addresses["edges"].as_array().unwrap();
        let edge = edges.iter().find(|edge| edge["cluster"] == ENTRANCE).unwrap();
        let (host, port) = edge["https"].as_str().unwrap().rsplit_once(':').unwrap();
        (host.to_owned(), port.to_owned())
    }

    /// curl that trusts the authority and knows where the host is; and the URL of a path.
    fn curl(&self, path: &str) -> (Command, String) {
        let (address, port) = self.at();
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", "30"]);
        command.args(["--cacert", &self.trusted, "--connect-to", &format!("{HOST}:443:{address}:{port}")]);
        (command, format!("https://{HOST}{path}"))
    }

    /// What curl prints; or what went wrong.
    fn get(&self, options: &[&str]) -> String {
        let (mut command, url) = self.curl("/");
        let output = command.args(options).arg(url).output().unwrap();
        if output.status.success() {
            text(&output.stdout)
        } else {
            format!("failed: {}", text(&output.stderr))
        }
    }

    /// The same, without what is in the page.
    fn told(&self, format: &str, options: &[&str]) -> String {
        self.get(&[&["-o", "/dev/null", "-w", format], options].concat())
    }
}

fn write(base: &Path, name: &str, content: &str) -> String {
    let file = base.join(name);
    std::fs::write(&file, content).unwrap();
    file.display().to_string()
}

/// One curl that asks again and again over one connection, and gives up at the first failure.
struct Kept {
    process: Child,
    /// A line for each request: how many connections it had to open; and what went wrong.
    told: std::path::PathBuf,
}

impl Kept {
    fn begin(shop: &Shop, base: &Path) -> Self {
        let told = base.join("kept");
        let (mut command, url) = shop.curl("/[1-1000000]");
        command
            .args(["--fail-early", "--rate", "100/s", "-o", "/dev/null", "-w", "%{stderr}%{num_connects}\\n"])
            .arg(url);
        // Its time is over when it is told so.
        command.args(["--max-time", "600"]);
        let file = std::fs::File::create(&told).unwrap();
        // What is written there is not kept back.
        Self { process: command.stderr(file).spawn().unwrap(), told }
    }

    fn connects(&self) -> Vec<String> {
        let told = std::fs::read_to_string(&self.told).unwrap_or_default();
        told.lines().map(str::to_owned).collect()
    }

    /// Waits for answers from now on.
    #[track_caller]
    fn goes_on(&mut self) {
        let before = self.connects().len();
        becomes("requests are answered on the same connection", &true, || {
            self.connects().len() > before + SOME
        });
        assert_eq!(self.process.try_wait().unwrap(), None, "a request has failed");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn certificates_are_exchanged_under_load_and_nobody_notices() {
    let base = tempfile::tempdir().unwrap();
    let Some(shop) = Shop::open("https: rotation", base.path()) else { return };
    let first = shop.certify();
    shop.ingress("");
    becomes("the nearest cluster answers", &true, || shop.get(&[]).contains(BY_ENTRANCE));
    let shown = || shop.told("%{certs}", &[]);
    assert!(shown().contains(first.certificate.trim()), "{}", shown());

    let mut kept = Kept::begin(&shop, base.path());
    kept.goes_on();
    for _ in 0..ROTATIONS {
        let next = shop.certify();
        // Everybody who comes anew is served all the time.
        becomes("new connections are shown the new one", &true, || {
            let shown = shown();
            assert!(!shown.starts_with("failed"), "{shown}");
            shown.contains(next.certificate.trim())
        });
        kept.goes_on();
    }
    let connects = kept.connects();
    let opened = connects.iter().filter(|count| *count != "0").count();
    println!("{} requests on one connection over {ROTATIONS} rotations", connects.len());
    assert_eq!(opened, 1, "the connection was not kept");
}

#[test]
fn what_annotations_ask_of_https_is_what_curl_meets() {
    let base = tempfile::tempdir().unwrap();
    let Some(shop) = Shop::open("https: annotations", base.path()) else { return };
    let pair = shop.certify();
    shop.ingress("landfall.dev/hsts-seconds: '31536000', landfall.dev/min-tls-version: '1.3'");
    let version = |most: &str| shop.told("%{http_code} %{http_version}", &["--tls-max", most]);
    becomes("TLS 1.3 and HTTP/2", &"200 2".to_owned(), || version("1.3"));
    becomes("TLS 1.2 is too old", &true, || version("1.2").starts_with("failed"));
    let headers = shop.get(&["-o", "/dev/null", "-D", "-"]);
    assert!(headers.to_lowercase().contains("strict-transport-security: max-age=31536000"), "{headers}");
    // Who comes without TLS is sent on.
    let plain = shop.playground.carries_at(ENTRANCE);
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--noproxy",
        "*",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %{redirect_url}",
        "-H",
    ]);
    command.arg(format!("Host: {HOST}")).arg(format!("http://{plain}/a?b"));
    assert_eq!(text(&command.output().unwrap().stdout), format!("308 https://{HOST}/a?b"));

    a_browser_loads_a_page(&shop, &pair, base.path());

    // Only those come in for whom an authority vouches.
    let (clients, strangers) = (Authority::new(), Authority::new());
    let secret = BASE64.encode(&clients.pem);
    shop.playground.give(&format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: clients}}, data: {{ca.crt: {secret}}}}}"
    ));
    shop.ingress("landfall.dev/client-ca-secret: clients");
    let shop = &shop;
    let shows = |name: &str, authority: &Authority| {
        let pair = authority.sign(name);
        let certificate = write(base.path(), &format!("{name}.crt"), &pair.certificate);
        let key = write(base.path(), &format!("{name}.key"), &pair.key);
        move || shop.told("%{http_code}", &["--cert", &certificate, "--key", &key])
    };
    let (alice, eve) = (shows("alice", &clients), shows("eve", &strangers));
    becomes("nobody without a certificate", &true, || shop.told("%{http_code}", &[]).starts_with("failed"));
    becomes("those who have one", &"200".to_owned(), alice);
    assert!(eve().starts_with("failed"), "{}", eve());
}

/// Headless Chromium, which finds the host at the edge and trusts its key.
fn a_browser_loads_a_page(shop: &Shop, pair: &Pair, base: &Path) {
    let Some(chromium) = find("chromium") else { return skip("https: a browser", "chromium not found") };
    let (address, port) = shop.at();
    let load = || {
        let mut command = Command::new(&chromium);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-proxy-server",
        ]);
        command.args(["--disable-background-networking", "--virtual-time-budget=5000", "--dump-dom"]);
        command.arg(format!("--user-data-dir={}", base.join("browser").display()));
        command.arg(format!("--host-resolver-rules=MAP {HOST}:443 {address}:{port}"));
        command.arg(format!("--ignore-certificate-errors-spki-list={}", pair.pin));
        let output = command.arg(format!("https://{HOST}/page")).stderr(Stdio::null()).output().unwrap();
        text(&output.stdout)
    };
    becomes("a browser shows what a pod says", &true, || {
        let page = load();
        page.contains(BY_ENTRANCE) && page.contains("/page")
    });
}
