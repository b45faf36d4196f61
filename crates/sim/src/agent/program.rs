//! What a container runs, decided from its spec: the echo program, a few words of shell, or a program of this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

/// Programs of this machine by image: what a pod with such an image really runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programs(pub BTreeMap<String, Local>);

/// A program of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// The program.
    pub path: PathBuf,
    /// Its arguments when the container gives none.
    pub args: Vec<String>,
}

/// What a container runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// The echo program, on every port of the container.
    Echo,
    /// Steps that are understood from its command.
    Script(Vec<Step>),
    /// A program of this machine.
    Local(Local),
}

/// One thing that a script does. Behind the last it exits with 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Waits; none for ever.
    Sleep(Option<Duration>),
    /// Writes a line to its log.
    Print(String),
    /// Ends.
    Exit(i32),
}

/// The longest script that is looked at.
const SCRIPT_BYTES_MAX: usize = 4096;

/// Decides what a container runs. `finite`: its pod is one that ends (an init container, or of a Job).
pub(super) fn decide(container: &Value, finite: bool, programs: &Programs) -> Program {
    let image = container["image"].as_str().unwrap_or("");
    if let Some(local) = programs.find(image) {
        let args = words(container);
        let args = if args.is_empty() { local.args.clone() } else { args };
        return Program::Local(Local { path: local.path.clone(), args });
    }
    let serves = container["ports"].as_array().is_some_and(|ports| !ports.is_empty());
    let words = words(container);
    match script(&words) {
        Some(steps) => Program::Script(steps),
        None if is_pause(image) => Program::Script(vec![Step::Sleep(None)]),
        None if finite && !serves => Program::Script(Vec::new()),
        None => Program::Echo,
    }
}

/// What a command exits with, as far as it is understood; 0 otherwise.
pub(super) fn exit_code(spec: &Value) -> i32 {
    let steps = script(&words(spec)).unwrap_or_default();
    steps.iter().find_map(|step| if let Step::Exit(code) = step { Some(*code) } else { None }).unwrap_or(0)
}

/// How long a container sleeps before it is asked to stop: the one preStop hook that is understood.
pub(super) fn pre_stop(container: &Value) -> Duration {
    let hook = &container["lifecycle"]["preStop"];
    let slept = |step: &Step| if let Step::Sleep(time) = step { *time } else { None };
    let command = || script(&words(&hook["exec"])).iter().flatten().filter_map(slept).max();
    let seconds = hook["sleep"]["seconds"].as_u64().map(Duration::from_secs);
    seconds.or_else(command).unwrap_or_default()
}

impl Programs {
    /// By the whole image, or by it without its tag and digest.
    fn find(&self, image: &str) -> Option<&Local> {
        self.0.get(image).or_else(|| self.0.get(bare(image)))
    }
}

/// An image without its tag and digest.
fn bare(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let last = image.rfind('/').map_or(0, |at| at + 1);
    match image.get(last..).and_then(|name| name.find(':')) {
        Some(colon) => image.get(..last + colon).unwrap_or(image),
        None => image,
    }
}

fn is_pause(image: &str) -> bool {
    bare(image).rsplit('/').next() == Some("pause")
}

/// Command and arguments.
fn words(container: &Value) -> Vec<String> {
    let list = |field: &str| container[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    list("command").chain(list("args")).map(ToOwned::to_owned).collect()
}

/// The steps of a command; none when it is not understood.
fn script(words: &[String]) -> Option<Vec<Step>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (program, rest) = words.split_first()?;
    let shell = matches!(program.rsplit('/').next(), Some("sh" | "bash" | "ash"));
    match (shell, rest) {
        (true, [flag, text, ..]) if flag.starts_with('-') && flag.ends_with('c') => shell_script(text),
        _ => Some(vec![step(&words)?]).map(flat),
    }
}

/// Simple commands separated by `;`, `&&` or lines. Variables, pipes and loops are not understood.
fn shell_script(text: &str) -> Option<Vec<Step>> {
    if text.len() > SCRIPT_BYTES_MAX || text.contains(['$', '`', '|', '<', '>', '(', '{', '*']) {
        return None;
    }
    let separated = text.replace("&&", ";").replace('\n', ";");
    let commands = separated.split(';').map(str::trim).filter(|command| !command.is_empty());
    let steps = commands.map(|command| step(&command.split_whitespace().collect::<Vec<_>>()));
    steps.collect::<Option<Vec<_>>>().map(flat)
}

/// Without steps that do nothing.
fn flat(steps: Vec<Option<Step>>) -> Vec<Step> {
    steps.into_iter().flatten().collect()
}

/// One command: none when it is not understood, some none when it does nothing.
fn step(words: &[&str]) -> Option<Option<Step>> {
    let (program, rest) = words.split_first()?;
    let quoted = |text: String| text.trim_matches(['"', '\'']).to_owned();
    Some(match (program.rsplit('/').next()?, rest) {
        ("true" | ":", _) => None,
        ("false", _) => Some(Step::Exit(1)),
        ("exit", []) => Some(Step::Exit(0)),
        ("exit", [code]) => Some(Step::Exit(code.parse().ok()?)),
        ("sleep", ["infinity" | "inf"]) => Some(Step::Sleep(None)),
        ("sleep", [time]) => Some(Step::Sleep(Some(duration(time)?))),
        ("echo", text) => Some(Step::Print(quoted(text.join(" ")))),
        _ => return None,
    })
}

/// Seconds, or with a unit as `sleep` of coreutils takes it.
fn duration(text: &str) -> Option<Duration> {
    let (number, factor) = match text.char_indices().last()? {
        (at, 's') => (&text[..at], 1.0),
        (at, 'm') => (&text[..at], 60.0),
        (at, 'h') => (&text[..at], 3600.0),
        (at, 'd') => (&text[..at], 86400.0),
        _ => (text, 1.0),
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * factor).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(container: &Value, finite: bool, want: &Program) {
        let local = Local { path: "/bin/x".into(), args: vec!["a".into()] };
        let programs = Programs([("local/tool".to_owned(), local)].into());
        assert_eq!(decide(container, finite, &programs), *want, "{container}");
    }

    #[test]
    fn what_containers_run() {
        let script = |steps: &[Step]| Program::Script(steps.to_vec());
        let second = Step::Sleep(Some(Duration::from_secs(1)));
        let local = |arg: &str| Program::Local(Local { path: "/bin/x".into(), args: vec![arg.into()] });
        let shell = |text: &str| json!({"image": "busybox", "command": ["/bin/sh", "-c", text]});
        check(&json!({"image": "nginx"}), false, &Program::Echo);
        check(&json!({"image": "nginx"}), true, &script(&[]));
        check(&json!({"image": "nginx", "ports": [{"containerPort": 80}]}), true, &Program::Echo);
        check(&json!({"image": "registry.k8s.io/pause:3.10"}), false, &script(&[Step::Sleep(None)]));
        check(&json!({"image": "b", "command": ["true"]}), false, &script(&[]));
        check(&json!({"image": "b", "command": ["false"]}), false, &script(&[Step::Exit(1)]));
        check(&json!({"image": "b", "args": ["sleep", "1s"]}), false, &script(std::slice::from_ref(&second)));
        check(
            &json!({"image": "b", "command": ["sleep"], "args": ["infinity"]}),
            false,
            &script(&[Step::Sleep(None)]),
        );
        check(
            &shell("echo 'hi there' && sleep 1; exit 3"),
            false,
            &script(&[Step::Print("hi there".into()), second, Step::Exit(3)]),
        );
        check(&shell("while true; do sleep 1; done"), false, &Program::Echo);
        check(&shell("echo $HOME"), false, &Program::Echo);
        check(&shell("sleep -1"), false, &Program::Echo);
        check(&json!({"image": "b", "command": ["sleep", "1e300"]}), false, &Program::Echo);
        check(&json!({"image": "local/tool:v1"}), false, &local("a"));
        check(&json!({"image": "local/tool@sha256:0", "args": ["b"]}), false, &local("b"));
        check(&json!({}), false, &Program::Echo);
    }

    #[test]
    fn sleeping_before_the_end() {
        let check = |hook: Value, want: u64| {
            assert_eq!(
                pre_stop(&json!({"lifecycle": {"preStop": hook}})),
                Duration::from_secs(want),
                "{hook}"
            );
        };
        check(json!({"sleep": {"seconds": 3}}), 3);
        check(json!({"exec": {"command": ["/bin/sh", "-c", "sleep 4"]}}), 4);
        check(json!({"exec": {"command": ["nginx", "-s", "quit"]}}), 0);
        check(json!({"httpGet": {"port": 80}}), 0);
        check(Value::Null, 0);
    }

    #[test]
    fn images_without_tags() {
        for (image, want) in
            [("a", "a"), ("a:1", "a"), ("h:5000/a", "h:5000/a"), ("h:5000/a:1@sha256:2", "h:5000/a")]
        {
            assert_eq!(bare(image), want);
        }
    }
}
