//! What can be typed after the basic commands.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Which server, and where in it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// The kubeconfig. Default: the running playground's, or kubectl's own.
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context in it: `federation`, or the name of a cluster.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The namespace. Default: the context's, or `default`.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
}

/// How objects are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table with more columns.
    Wide,
    /// The objects as YAML.
    Yaml,
    /// The objects as JSON.
    Json,
    /// Kinds and names alone.
    Name,
}

const GET_EXAMPLES: &str = "\
Examples:
  landfall get clusters
  landfall get services --all-namespaces
  landfall get deployment web -o yaml
  landfall get pods -l app=web --context us-east";

#[derive(Args, Debug)]
#[command(after_help = GET_EXAMPLES)]
pub(crate) struct GetOptions {
    /// What: a kind, then names if wanted; or KIND/NAME.
    #[arg(required = true, value_name = "KIND [NAME…]")]
    pub(crate) what: Vec<String>,

    /// From every namespace.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,

    /// Only objects with such labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,

    /// How to show them.
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Output>,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

const APPLY_EXAMPLES: &str = "\
Examples:
  landfall apply -f app.yaml
  landfall apply -f manifests/ --context eu-west
  cat app.yaml | landfall apply -f -";

#[derive(Args, Debug)]
#[command(after_help = APPLY_EXAMPLES)]
pub(crate) struct ApplyOptions {
    /// A file, a directory of .yaml, .yml and .json files, or `-` for standard input; may be repeated.
    #[arg(short = 'f', long = "filename", required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Take over fields that others manage.
    #[arg(long)]
    pub(crate) force_conflicts: bool,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

const DESCRIBE_EXAMPLES: &str = "\
Examples:
  landfall describe cluster us-east
  landfall describe pods -l app=web --context us-east";

#[derive(Args, Debug)]
#[command(after_help = DESCRIBE_EXAMPLES)]
pub(crate) struct DescribeOptions {
    /// What: a kind, then names if wanted; or KIND/NAME.
    #[arg(required = true, value_name = "KIND [NAME…]")]
    pub(crate) what: Vec<String>,

    /// Only objects with such labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,

    #[command(flatten)]
    pub(crate) connection: Connection,
}

const DELETE_EXAMPLES: &str = "\
Examples:
  landfall delete deployment web
  landfall delete -f app.yaml
  landfall delete pods -l app=web --context us-east";

#[derive(Args, Debug)]
#[command(after_help = DELETE_EXAMPLES)]
pub(crate) struct DeleteOptions {
    /// What: a kind, then names; or KIND/NAME.
    #[arg(required_unless_present = "files", conflicts_with = "files", value_name = "KIND [NAME…]")]
    pub(crate) what: Vec<String>,

    /// Delete what this file or directory names; `-` for standard input.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Delete objects with such labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,

    #[command(flatten)]
    pub(crate) connection: Connection,
}
