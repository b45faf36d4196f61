//! `pods/log`: what containers have written, from whoever runs the pods.

use bytes::Bytes;
use futures::stream::BoxStream;
use landfall_api::{Status, meta};
use serde_json::Value;

/// Which lines of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// The container; empty when the pod has only one.
    pub container: String,
    /// Whether lines to come are wanted too.
    pub follow: bool,
    /// Whether the run before the current one is asked about.
    pub previous: bool,
    /// Only the last lines.
    pub tail_lines: Option<u64>,
    /// Only lines written after this time, in seconds since 1970.
    pub since_s: Option<i64>,
    /// Whether every line begins with its time.
    pub timestamps: bool,
    /// Only so many bytes.
    pub limit_bytes: Option<u64>,
}

/// Whoever has the logs of pods.
pub trait PodLogs: Send + Sync + 'static {
    /// The lines asked for, as they come. The container is one of the pod's.
    fn open(&self, pod: &Value, options: &LogOptions) -> Result<BoxStream<'static, Bytes>, Status>;
}

impl LogOptions {
    /// Reads the query of a request. `now_s` is what "since so many seconds" is counted from.
    pub fn parse(query: &str, now_s: i64) -> Result<Self, Status> {
        let mut options = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let flag = || !matches!(&*value, "false" | "0");
            match &*key {
                "container" => options.container = value.into_owned(),
                "follow" => options.follow = flag(),
                "previous" => options.previous = flag(),
                "timestamps" => options.timestamps = flag(),
                "tailLines" => options.tail_lines = Some(number(&value)?),
                "limitBytes" => options.limit_bytes = Some(number(&value)?),
                "sinceSeconds" => {
                    let seconds = i64::try_from(number(&value)?).unwrap_or(i64::MAX);
                    options.since_s = Some(now_s.saturating_sub(seconds));
                }
                "sinceTime" => {
                    let time: jiff::Timestamp =
                        value.parse().map_err(|_| Status::bad_request(format!("{value:?} is not a time")))?;
                    options.since_s = Some(time.as_second());
                }
                _ => {}
            }
        }
        Ok(options)
    }

    /// Settles which container of a pod is meant, or says that it cannot be.
    pub fn choose(&mut self, pod: &Value) -> Result<(), Status> {
        let names: Vec<&str> = ["containers", "initContainers", "ephemeralContainers"]
            .iter()
            .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
            .filter_map(|container| container["name"].as_str())
            .collect();
        let pod = meta::name(pod);
        match (self.container.as_str(), names.as_slice()) {
            ("", [only]) => (*only).clone_into(&mut self.container),
            ("", names) => {
                let names = names.join(" ");
                let why =
                    format!("a container name must be specified for pod {pod}, choose one of: [{names}]");
                return Err(Status::bad_request(why));
            }
            (name, names) if !names.contains(&name) => {
                return Err(Status::bad_request(format!("container {name} is not valid for pod {pod}")));
            }
            _ => {}
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<u64, Status> {
    text.parse()
        .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_are_read() {
        let options =
            LogOptions::parse("container=a&follow=true&tailLines=5&sinceSeconds=10&previous=0", 100);
        let want = LogOptions {
            container: "a".into(),
            follow: true,
            tail_lines: Some(5),
            since_s: Some(90),
            ..LogOptions::default()
        };
        assert_eq!(options.unwrap(), want);
        for bad in ["tailLines=x", "sinceTime=yesterday", "limitBytes=-1"] {
            assert_eq!(LogOptions::parse(bad, 0).unwrap_err().reason.code(), 400, "{bad}");
        }
    }

    #[test]
    fn a_container_is_chosen() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}});
        let two = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let check = |pod: &Value, name: &str, want: Result<&str, &str>| {
            let mut options = LogOptions { container: name.into(), ..LogOptions::default() };
            let chosen = options.choose(pod).map(|()| options.container).map_err(|status| status.message);
            assert_eq!(chosen.as_deref().map_err(String::as_str), want);
        };
        check(&pod, "", Ok("a"));
        check(&two, "b", Ok("b"));
        check(&two, "", Err("a container name must be specified for pod p, choose one of: [a b]"));
        check(&pod, "x", Err("container x is not valid for pod p"));
    }
}
