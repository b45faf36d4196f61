//! curl as a client of a name: one that tries the addresses it was given in their order, and one that keeps its connection, as a
//! browser does. They are real clients, not ours: how long they wait and whom they try next is theirs to decide.

use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

/// How long curl waits for all addresses together, and for a whole request, in seconds.
const CONNECT_S: &str = "4";
const REQUEST_S: &str = "8";
/// How often a browser asks.
const RATE: &str = "5/s";

/// A client that looked a name up, and was told these addresses.
#[derive(Clone, Debug)]
pub struct Curl {
    /// The name that is asked for.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// Where it is, the first first.
    pub addresses: Vec<String>,
}

/// One curl for all requests, which keeps its connection and what it knows of the name.
pub struct Browser {
    process: Child,
    last: Arc<Mutex<Option<String>>>,
}

impl Curl {
    /// Which cluster answers one request; none where nobody does.
    ///
    /// # Errors
    /// There is no curl.
    pub fn ask(&self) -> io::Result<Option<String>> {
        let output = self.command().arg(self.url()).output()?;
        let body: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let cluster = body["cluster"].as_str().map(str::to_owned);
        Ok(cluster.filter(|_| output.status.success()))
    }

    /// Begins to ask again and again.
    ///
    /// # Errors
    /// There is no curl.
    pub fn browse(&self) -> io::Result<Browser> {
        let mut command = self.command();
        command.args(["--rate", RATE, "--no-buffer", "--write-out", "\\n"]);
        command.arg(format!("{}?[1-1000000]", self.url()));
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let said = process.stdout.take().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let last = Arc::new(Mutex::new(None));
        let seen = last.clone();
        std::thread::spawn(move || {
            // An answer is JSON of many lines, one of which tells this.
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                let told = line.trim().strip_prefix("\"cluster\": \"");
                if let Some(cluster) = told.and_then(|rest| rest.split('"').next()) {
                    *seen.lock() = Some(cluster.to_owned());
                }
            }
        });
        Ok(Browser { process, last })
    }

    fn url(&self) -> String {
        format!("http://{}:{}/", self.name, self.port)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("curl");
        command.args(["--silent", "--fail", "--ipv4", "--noproxy", "*"]);
        command.args(["--connect-timeout", CONNECT_S, "--max-time", REQUEST_S, "--resolve"]);
        command.arg(format!("{}:{}:{}", self.name, self.port, self.addresses.join(",")));
        command
    }
}

impl Browser {
    /// Who answered last.
    pub fn last(&self) -> Option<String> {
        self.last.lock().clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
