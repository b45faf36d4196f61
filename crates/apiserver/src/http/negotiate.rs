//! Media types: what the client takes (`Accept`) and what it sends (`Content-Type`).

use landfall_api::{Reason, Status};

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The object or list itself.
    Plain,
    /// `as=Table`, in this version of meta.k8s.io.
    Table(MetaVersion),
    /// `as=PartialObjectMetadata` or `…List`.
    Partial(MetaVersion),
}

/// A version of meta.k8s.io.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    /// v1.
    V1,
    /// v1beta1.
    V1Beta1,
}

impl MetaVersion {
    /// The `apiVersion`.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// YAML, for people.
    Yaml,
}

/// What a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The form.
    pub form: Form,
    /// The encoding.
    pub encoding: Encoding,
}

impl Accept {
    /// Plain JSON.
    pub const JSON: Self = Self { form: Form::Plain, encoding: Encoding::Json };
}

/// Which transformed forms an endpoint can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offers {
    /// Objects: plain, table, partial.
    Objects,
    /// Plain only.
    Plain,
}

/// Chooses the best form we can give from an `Accept` header (none: JSON); 406 when there is none.
pub fn accept(header: Option<&str>, offers: Offers) -> Result<Accept, Status> {
    let Some(header) = header.filter(|h| !h.trim().is_empty()) else { return Ok(Accept::JSON) };
    // Clients list what they prefer first; q-values other than 0 are not used by any Kubernetes client.
    header.split(',').find_map(|part| one(part, offers)).ok_or_else(not_acceptable)
}

/// 406.
pub fn not_acceptable() -> Status {
    Status::new(
        Reason::NotAcceptable,
        "only the following media types are accepted: application/json, application/yaml",
    )
}

fn one(part: &str, offers: Offers) -> Option<Accept> {
    let mut pieces = part.split(';').map(str::trim);
    let encoding = match pieces.next()? {
        "application/json" | "*/*" | "application/*" => Encoding::Json,
        "application/yaml" => Encoding::Yaml,
        _ => return None,
    };
    let (mut wanted, mut group, mut version) = ("", "", "");
    for piece in pieces {
        match piece.split_once('=') {
            Some(("as", value)) => wanted = value,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            Some(("q", "0" | "0.0")) => return None,
            _ => {}
        }
    }
    let form = match (wanted, group, version, offers) {
        ("", ..) => Form::Plain,
        ("Table", "meta.k8s.io", v, Offers::Objects) => Form::Table(meta_version(v)?),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", v, Offers::Objects) => {
            Form::Partial(meta_version(v)?)
        }
        _ => return None,
    };
    Some(Accept { form, encoding })
}

fn meta_version(version: &str) -> Option<MetaVersion> {
    match version {
        "v1" => Some(MetaVersion::V1),
        "v1beta1" => Some(MetaVersion::V1Beta1),
        _ => None,
    }
}

/// The media type of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// `application/json`, also when nothing is said.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
    /// `application/json-patch+json`.
    JsonPatch,
    /// `application/merge-patch+json`.
    MergePatch,
    /// `application/strategic-merge-patch+json`.
    StrategicPatch,
    /// `application/apply-patch+yaml`.
    ApplyPatch,
}

/// Reads a `Content-Type` header; parameters such as charset are ignored. None for a type we do not know.
pub fn content(header: Option<&str>) -> Option<Content> {
    let text = header.unwrap_or("").split(';').next().unwrap_or("").trim();
    Some(match text {
        "" | "application/json" => Content::Json,
        "application/yaml" => Content::Yaml,
        "application/vnd.kubernetes.protobuf" => Content::Protobuf,
        "application/json-patch+json" => Content::JsonPatch,
        "application/merge-patch+json" => Content::MergePatch,
        "application/strategic-merge-patch+json" => Content::StrategicPatch,
        "application/apply-patch+yaml" => Content::ApplyPatch,
        _ => return None,
    })
}

/// 415, naming what would have been accepted.
pub fn unsupported(accepted: &[&str]) -> Status {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    );
    Status::new(Reason::UnsupportedMediaType, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_given_is_chosen() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let typed = "application/vnd.kubernetes.protobuf,application/json";
        let cases = [
            (None, Offers::Objects, Some(Form::Plain)),
            (Some("*/*"), Offers::Objects, Some(Form::Plain)),
            (Some(table), Offers::Objects, Some(Form::Table(MetaVersion::V1))),
            (Some(table), Offers::Plain, Some(Form::Plain)),
            (Some(typed), Offers::Objects, Some(Form::Plain)),
            (Some("application/vnd.kubernetes.protobuf"), Offers::Objects, None),
            (Some("text/html"), Offers::Objects, None),
        ];
        for (header, offers, want) in cases {
            assert_eq!(accept(header, offers).ok().map(|a| a.form), want, "{header:?}");
        }
    }
}
