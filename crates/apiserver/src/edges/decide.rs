//! Who gets an edge's certificate: a pure function from a request and what is known to a decision with its reason.

use super::{BOOTSTRAPPERS, EDGES, USER_PREFIX};
use crate::certificates::Subject;

/// An edge that spoke less than this long ago is alive, and its name is its own.
pub const ALIVE_S: i64 = 10;

/// What a certificate may be used for; the first must be asked for.
const USAGES: [&str; 4] = ["client auth", "server auth", "digital signature", "key encipherment"];

/// A request, as it was asked.
#[derive(Clone, Debug, Default)]
pub struct Asked<'a> {
    /// Its name.
    pub name: &'a str,
    /// Who asks.
    pub username: &'a str,
    /// The uid of who asks.
    pub uid: &'a str,
    /// The groups of who asks.
    pub groups: Vec<&'a str>,
    /// The only cluster that the one who asks may speak for; empty for any.
    pub bound: &'a str,
    /// The cluster it is asked for; empty when that was not said.
    pub cluster: &'a str,
    /// The only group that it may speak for; empty for any.
    pub bound_group: &'a str,
    /// The group it is asked for; empty for none.
    pub group: &'a str,
    /// What the certificate shall be used for.
    pub usages: Vec<&'a str>,
    /// Whom the certificate shall name.
    pub subject: Subject,
    /// Somebody has approved it already.
    pub approved: bool,
}

/// What is known of the edge that has the name, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Which one.
    pub uid: String,
    /// Where it stands.
    pub cluster: String,
    /// When it spoke last, or was made, in seconds since 1970.
    pub spoke_s: i64,
    /// The request it was made with.
    pub request: String,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Somebody else must decide.
    Leave,
    /// No, and why.
    Deny(String),
    /// Yes: for an edge of that name.
    Sign {
        /// The edge.
        edge: String,
        /// How it comes to be.
        how: How,
    },
}

/// Which `Edge` a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// The one that is there.
    Keep {
        /// Which one.
        uid: String,
    },
    /// A new one.
    Make {
        /// Where it stands.
        cluster: String,
        /// The dead one whose place it takes.
        instead_of: Option<String>,
    },
}

/// Decides about a request.
pub fn decide(
    asked: &Asked<'_>,
    holder: Option<&Holder>,
    is_cluster: &dyn Fn(&str) -> bool,
    now_s: i64,
) -> Decision {
    let bootstraps = asked.groups.contains(&BOOTSTRAPPERS);
    let renews = asked.groups.contains(&EDGES);
    if !bootstraps && !renews && !asked.approved {
        return Decision::Leave;
    }
    let edge = match edge_name(asked) {
        Ok(name) => name.to_owned(),
        Err(why) => return Decision::Deny(why),
    };
    let result = match holder {
        Some(holder) if holder.request == asked.name => Ok(How::Keep { uid: holder.uid.clone() }),
        _ if renews => renewal(asked, &edge, holder),
        _ => registration(asked, &edge, holder, is_cluster, now_s),
    };
    match result {
        Ok(how) => Decision::Sign { edge, how },
        Err(why) => Decision::Deny(why),
    }
}

/// The edge that the subject names, if the certificate is one that edges get.
fn edge_name<'a>(asked: &'a Asked<'_>) -> Result<&'a str, String> {
    let Subject { names, groups, more } = &asked.subject;
    let name = match names.as_slice() {
        [only] => only.strip_prefix(USER_PREFIX).unwrap_or(""),
        _ => "",
    };
    if !landfall_api::names::is_subdomain(name) {
        return Err(format!("the subject's common name must be {USER_PREFIX} and the edge's name"));
    }
    if *groups != [EDGES] {
        return Err(format!("the subject's organization must be {EDGES}"));
    }
    if *more {
        return Err("the subject must have nothing but a common name and an organization".into());
    }
    let first = USAGES.first().copied().unwrap_or_default();
    if !asked.usages.contains(&first) || asked.usages.iter().any(|usage| !USAGES.contains(usage)) {
        return Err("the certificate of an edge is for client auth, and for server auth besides".into());
    }
    Ok(name)
}

/// An edge asks for itself.
fn renewal(asked: &Asked<'_>, edge: &str, holder: Option<&Holder>) -> Result<How, String> {
    let own = asked.username.strip_prefix(USER_PREFIX) == Some(edge);
    match holder {
        Some(holder) if own && !asked.uid.is_empty() && holder.uid == asked.uid => {
            Ok(How::Keep { uid: holder.uid.clone() })
        }
        _ => Err("an edge may ask for its own certificate only".into()),
    }
}

/// Somebody with a token asks, or an administrator has approved it.
fn registration(
    asked: &Asked<'_>,
    edge: &str,
    holder: Option<&Holder>,
    is_cluster: &dyn Fn(&str) -> bool,
    now_s: i64,
) -> Result<How, String> {
    let cluster = if asked.cluster.is_empty() { asked.bound } else { asked.cluster };
    if cluster.is_empty() {
        return Err("the request does not say in which cluster the edge stands".into());
    }
    if !asked.bound.is_empty() && cluster != asked.bound {
        return Err(format!("the token is for edges of {:?}, not of {cluster:?}", asked.bound));
    }
    if !asked.bound_group.is_empty() && asked.group != asked.bound_group {
        return Err(format!(
            "the token is for edges of the group {:?}, not of {:?}",
            asked.bound_group, asked.group
        ));
    }
    if !is_cluster(cluster) {
        return Err(format!("there is no cluster {cluster:?}"));
    }
    let Some(holder) = holder else {
        return Ok(How::Make { cluster: cluster.into(), instead_of: None });
    };
    if holder.cluster != cluster {
        return Err(format!("another edge, in {:?}, is called {edge:?}", holder.cluster));
    }
    let silent_s = now_s.saturating_sub(holder.spoke_s);
    if silent_s < ALIVE_S && !asked.approved {
        return Err(format!(
            "an edge that is alive is called {edge:?}; its name is free {ALIVE_S} s after it fell silent"
        ));
    }
    Ok(How::Make { cluster: cluster.into(), instead_of: Some(holder.uid.clone()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(name: &str) -> Subject {
        Subject { names: vec![format!("{USER_PREFIX}{name}")], groups: vec![EDGES.into()], more: false }
    }

    fn bootstrap() -> Asked<'static> {
        Asked {
            name: "r1",
            username: "system:bootstrap:abcdef",
            groups: vec!["system:bootstrappers", BOOTSTRAPPERS],
            cluster: "a",
            usages: vec!["client auth", "digital signature"],
            subject: subject("e1"),
            ..Asked::default()
        }
    }

    fn holder(cluster: &str, spoke_s: i64) -> Holder {
        Holder { uid: "u1".into(), cluster: cluster.into(), spoke_s, request: "r0".into() }
    }

    #[track_caller]
    fn check(asked: &Asked<'_>, holder: Option<&Holder>, expected: &str) {
        let got = match decide(asked, holder, &|name| name == "a" || name == "b", 100) {
            Decision::Leave => "leave".to_owned(),
            Decision::Deny(why) => why,
            Decision::Sign { edge, how: How::Keep { uid } } => format!("{edge} keeps {uid}"),
            Decision::Sign { edge, how: How::Make { cluster, instead_of } } => {
                format!("{edge} in {cluster} instead of {}", instead_of.unwrap_or_default())
            }
        };
        assert!(got.contains(expected), "{got:?}, not {expected:?}");
    }

    #[test]
    fn who_comes_in_with_a_token() {
        let good = bootstrap();
        check(&good, None, "e1 in a instead of ");
        check(&good, Some(&holder("a", 85)), "e1 in a instead of u1");
        check(&good, Some(&holder("a", 95)), "an edge that is alive is called \"e1\"");
        check(&good, Some(&holder("b", 5)), "another edge, in \"b\", is called \"e1\"");
        // The same request again, after a start that was cut short.
        let begun = Holder { request: "r1".into(), ..holder("a", 99) };
        check(&good, Some(&begun), "e1 keeps u1");
        check(&Asked { bound: "a", cluster: "", ..good.clone() }, None, "e1 in a instead of ");
        check(&Asked { bound: "b", ..good.clone() }, None, "the token is for edges of \"b\"");
        check(&Asked { bound_group: "blue", group: "blue", ..good.clone() }, None, "e1 in a instead of ");
        check(&Asked { group: "blue", ..good.clone() }, None, "e1 in a instead of ");
        check(
            &Asked { bound_group: "blue", group: "red", ..good.clone() },
            None,
            "edges of the group \"blue\"",
        );
        check(&Asked { bound_group: "blue", ..good.clone() }, None, "edges of the group \"blue\"");
        check(&Asked { cluster: "", ..good.clone() }, None, "does not say in which cluster");
        check(&Asked { cluster: "z", ..good.clone() }, None, "there is no cluster \"z\"");
        check(&Asked { groups: vec!["system:bootstrappers"], ..good.clone() }, None, "leave");
        check(&Asked { groups: vec![], approved: true, ..good }, None, "e1 in a instead of ");
    }

    #[test]
    fn an_edge_renews_itself_alone() {
        let own = Asked {
            username: "system:landfall:edge:e1",
            uid: "u1",
            groups: vec![EDGES],
            cluster: "",
            ..bootstrap()
        };
        check(&own, Some(&holder("a", 99)), "e1 keeps u1");
        check(&own, None, "its own certificate only");
        check(&Asked { uid: "u0", ..own.clone() }, Some(&holder("a", 99)), "its own certificate only");
        check(&Asked { uid: "", ..own.clone() }, Some(&holder("a", 99)), "its own certificate only");
        check(&Asked { subject: subject("e2"), ..own }, Some(&holder("a", 1)), "its own certificate only");
    }

    #[test]
    fn certificates_of_edges_are_for_edges() {
        let good = bootstrap();
        let with = |change: fn(&mut Asked<'_>)| {
            let mut asked = good.clone();
            change(&mut asked);
            asked
        };
        check(&with(|a| a.subject = Subject::default()), None, "common name must be");
        check(&with(|a| a.subject.names.push("x".into())), None, "common name must be");
        check(&with(|a| a.subject = subject("")), None, "common name must be");
        check(&with(|a| a.subject = subject("A b")), None, "common name must be");
        check(&with(|a| a.subject.names = vec!["system:admin".into()]), None, "common name must be");
        check(&with(|a| a.subject.groups.push("system:masters".into())), None, "organization must be");
        check(&with(|a| a.subject.groups.clear()), None, "organization must be");
        check(&with(|a| a.subject.more = true), None, "nothing but");
        check(&with(|a| a.usages = vec!["server auth"]), None, "is for client auth");
        check(&with(|a| a.usages.push("code signing")), None, "is for client auth");
        check(&with(|a| a.usages.clear()), None, "is for client auth");
        check(&with(|a| a.usages.push("server auth")), None, "e1 in a instead of ");
    }
}
