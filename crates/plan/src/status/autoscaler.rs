//! HorizontalPodAutoscalers: replicas are added up, metrics are averaged by replicas.

use landfall_api::quantity::Quantity;
use landfall_api::rules::read::{int, list, text};
use serde_json::{Map, Value};

use super::Picture;
use super::conditions::{Conditions, Said, join, join_bad};
use super::counts::{Count, How, Written, add_up, count};
use super::time;

const REPLICAS: &[Count] = &[
    count("currentReplicas", How::All, Written::NotZero),
    count("desiredReplicas", How::All, Written::Always),
];

/// Most metrics that are averaged; an autoscaler has a handful.
const METRICS_MAX: usize = 100;

/// The status of a HorizontalPodAutoscaler of `autoscaling/v2`.
pub(super) fn autoscaler(picture: &Picture<'_>, status: &mut Map<String, Value>) {
    add_up(picture, REPLICAS, status);
    picture.observe(status);
    let last = picture.shards.iter().filter_map(|shard| time(shard.status, "lastScaleTime")).max();
    super::set(status, "lastScaleTime", last.max(time(picture.before(), "lastScaleTime")));
    let metrics = metrics(picture);
    // Kubernetes writes `null` here when there are none.
    let metrics = if metrics.is_empty() { Value::Null } else { Value::Array(metrics) };
    status.insert("currentMetrics".into(), metrics);
    let mut conditions = Conditions::of(picture);
    let able = Said::new("True", "ReadyForNewScale", "able to scale in all clusters");
    conditions.put("AbleToScale", join(picture, "AbleToScale", "FailedGetScale", able));
    let active = Said::new("True", "ValidMetricFound", "scaling by metrics in all clusters");
    conditions.put("ScalingActive", join(picture, "ScalingActive", "InvalidMetric", active));
    let limited = join_bad(picture, "ScalingLimited", "TooManyReplicas");
    let within =
        || Said::new("False", "DesiredWithinRange", "the desired count is within the acceptable range");
    let known = picture.live().any(|shard| !shard.condition("ScalingLimited").is_null());
    conditions.put("ScalingLimited", limited.or_else(|| known.then(within)));
    conditions.reachable("the replicas it last reported are counted, its metrics are not");
    conditions.write(status);
}

/// One metric of all clusters, while it is averaged.
struct Mean {
    /// The metric without its numbers: what it is about.
    about: Value,
    /// For each number: its path in the metric, the weighted sum and the weights.
    numbers: Vec<(String, i128, i128)>,
}

/// The metrics of members that answer, in order of first mention, averaged by their replicas.
fn metrics(picture: &Picture<'_>) -> Vec<Value> {
    let mut means: Vec<Mean> = Vec::new();
    for shard in picture.live() {
        // A cluster without replicas tells of none.
        let weight = i128::from(int(shard.status, "currentReplicas").clamp(0, i64::from(i32::MAX)));
        for metric in list(shard.status, "currentMetrics").iter().filter(|_| weight > 0) {
            let Some((about, current)) = split(metric) else { continue };
            if !means.iter().any(|mean| mean.about == about) && means.len() < METRICS_MAX {
                means.push(Mean { about: about.clone(), numbers: Vec::new() });
            }
            if let Some(mean) = means.iter_mut().find(|mean| mean.about == about) {
                mean.add(&current, weight);
            }
        }
    }
    means.into_iter().filter_map(Mean::metric).collect()
}

/// The field of a metric with its description and numbers: `resource` for type `Resource`, and so on.
fn field(metric: &Value) -> String {
    let kind = text(metric, "type");
    let mut letters = kind.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

/// A metric without its numbers, and the numbers.
fn split(metric: &Value) -> Option<(Value, Map<String, Value>)> {
    let mut about = metric.clone();
    let inner = about.get_mut(field(metric))?.as_object_mut()?;
    let current = inner.remove("current")?;
    Some((about, current.as_object()?.clone()))
}

impl Mean {
    fn add(&mut self, current: &Map<String, Value>, weight: i128) {
        for (name, value) in current {
            let Some(milli) = Quantity::from_value(value).map(Quantity::milli) else { continue };
            let at = self.numbers.iter().position(|(known, ..)| known == name).unwrap_or(self.numbers.len());
            if at == self.numbers.len() && at < 3 {
                self.numbers.push((name.clone(), 0, 0));
            }
            if let Some((_, sum, weights)) = self.numbers.get_mut(at) {
                *sum = sum.saturating_add(i128::from(milli).saturating_mul(weight));
                *weights = weights.saturating_add(weight);
            }
        }
    }

    /// The averaged metric; none if it had no numbers.
    fn metric(self) -> Option<Value> {
        let mean = |(name, sum, weights): (String, i128, i128)| {
            let milli = i64::try_from(sum.checked_div(weights)?).ok()?;
            let value = if name == "averageUtilization" {
                Value::from(milli / 1000)
            } else {
                Value::from(Quantity::parse(&format!("{milli}m"))?.to_string())
            };
            Some((name, value))
        };
        let current: Map<String, Value> = self.numbers.into_iter().filter_map(mean).collect();
        let mut metric = self.about;
        let inner = field(&metric);
        metric.get_mut(inner)?.as_object_mut()?.insert("current".into(), Value::Object(current));
        Some(metric)
    }
}
