//! What can be typed after the commands about clusters.

use std::path::PathBuf;

use clap::Args;

use crate::basics::options::Connection;

const JOIN_EXAMPLES: &str = "\
Examples:
  # The member's context and the hub's are in one kubeconfig; the hub's is the current one
  landfall join us-east --context us-east

  # Two kubeconfigs, and a label to select it by
  landfall join eu-west --kubeconfig eu.yaml --context admin --hub-kubeconfig hub.yaml --label tier=gold

What it makes in the member: the namespace landfall-system with the ServiceAccount landfall-hub, and the
ClusterRole and ClusterRoleBinding landfall-hub, which allow what federated kinds need and nothing else. A kind of
your own that is federated needs one more permission: give --grant when you join, or, later, in the member:
  kubectl create clusterrole landfall-widgets --resource=widgets.example.com \\
      --verb=get,list,watch,create,update,patch,delete
  kubectl create clusterrolebinding landfall-widgets --clusterrole=landfall-widgets \\
      --serviceaccount=landfall-system:landfall-hub

Running it again with the same options changes nothing; what is not given again is taken away.";

#[derive(Args, Debug)]
#[command(after_help = JOIN_EXAMPLES)]
pub(crate) struct JoinOptions {
    /// The name it shall have in the federation: letters, digits and dashes.
    pub(crate) name: String,

    /// Where its API is for the hub, if not where it is for you.
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,

    /// A label of the cluster, to select it by; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,

    /// Where it stands. Default: what its nodes' labels say.
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,

    /// A zone that it spans; may be repeated. Default: what its nodes' labels say.
    #[arg(long = "zone", value_name = "ZONE")]
    pub(crate) zones: Vec<String>,

    /// A resource of your own that the hub may manage there, such as widgets.example.com; may be repeated.
    #[arg(long = "grant", value_name = "RESOURCE.GROUP", value_parser = resource)]
    pub(crate) grants: Vec<(String, String)>,

    /// Take the name over from another cluster that has it.
    #[arg(long)]
    pub(crate) force: bool,

    /// Do not wait until the hub has found it ready.
    #[arg(long)]
    pub(crate) no_wait: bool,

    #[command(flatten)]
    pub(crate) member: MemberConnection,

    #[command(flatten)]
    pub(crate) hub: HubConnection,
}

/// Which member.
#[derive(Args, Debug)]
pub(crate) struct MemberConnection {
    /// The kubeconfig. Default: the running playground's, or kubectl's own.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the member.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// Which hub, where the usual options mean a member.
#[derive(Args, Debug)]
pub(crate) struct HubConnection {
    /// The kubeconfig of the hub. Default: the same as for the member.
    #[arg(long, value_name = "FILE")]
    pub(crate) hub_kubeconfig: Option<PathBuf>,

    /// The context of the hub. Default: the current one.
    #[arg(long, value_name = "NAME")]
    pub(crate) hub_context: Option<String>,
}

const UNJOIN_EXAMPLES: &str = "\
Examples:
  # Take our objects out of us-east, then let it go
  landfall unjoin us-east

  # Leave everything there as it is, and remove the hub's account in the member
  landfall unjoin us-east --orphan --context us-east";

#[derive(Args, Debug)]
#[command(after_help = UNJOIN_EXAMPLES)]
pub(crate) struct UnjoinOptions {
    /// The cluster.
    pub(crate) name: String,

    /// Keep what is there: nobody manages it from then on.
    #[arg(long)]
    pub(crate) orphan: bool,

    /// How long to wait, in seconds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub(crate) timeout: u64,

    #[command(flatten)]
    pub(crate) member: MemberConnection,

    #[command(flatten)]
    pub(crate) hub: HubConnection,
}

const FORGET_EXAMPLES: &str = "\
Examples:
  # us-east burned down
  landfall forget us-east

What the federation has there is given up as it is: if the cluster does come back, it keeps its copies, and joining
it again adopts them.";

#[derive(Args, Debug)]
#[command(after_help = FORGET_EXAMPLES)]
pub(crate) struct ForgetOptions {
    /// The cluster, which is dead and will not return.
    pub(crate) name: String,

    /// How long to wait, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub(crate) timeout: u64,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  landfall cordon us-east\n  landfall uncordon us-east")]
pub(crate) struct CordonOptions {
    /// The cluster.
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

const DRAIN_EXAMPLES: &str = "\
Examples:
  # Move everything off us-east, and watch it go
  landfall drain us-east

  # And back
  landfall uncordon us-east";

#[derive(Args, Debug)]
#[command(after_help = DRAIN_EXAMPLES)]
pub(crate) struct DrainOptions {
    /// The cluster.
    pub(crate) name: String,

    /// Say that it shall be drained, and do not wait for it.
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Also when the other clusters have no room for its traffic.
    #[arg(long)]
    pub(crate) force: bool,

    /// How long to wait, in seconds.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub(crate) timeout: u64,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  landfall status\n  landfall status --context federation")]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub(crate) connection: Connection,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    let wrong = [landfall_api::names::qualified_name(key), landfall_api::names::label_value(value)].concat();
    match wrong.into_iter().next() {
        Some(sentence) => Err(sentence),
        None => Ok((key.to_owned(), value.to_owned())),
    }
}

fn resource(text: &str) -> Result<(String, String), String> {
    let (plural, group) =
        text.split_once('.').ok_or("expected RESOURCE.GROUP, such as widgets.example.com")?;
    let wrong = plural.is_empty() || plural == "*" || !landfall_api::names::is_subdomain(group);
    if wrong {
        Err("expected RESOURCE.GROUP, such as widgets.example.com".into())
    } else {
        Ok((plural.into(), group.into()))
    }
}
