//! What may differ between a hub and Kubernetes, and why. `docs/differences.md` is made from this table.

use std::collections::BTreeSet;

use regex::Regex;

use super::script::Step;
use Side::{Both, Ours, Theirs};

/// Whose output an edit is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The hub's.
    Ours,
    /// Kubernetes'.
    Theirs,
    /// Either's.
    Both,
}

/// A difference that we mean.
pub(super) struct Difference {
    /// What a user sees.
    pub(super) what: &'static str,
    /// Why it is so.
    why: &'static str,
    /// The steps that show it: a pattern for their command.
    steps: &'static str,
    /// What to change before comparing: whose text, a pattern (`^` and `$` mean lines), and what stands for it.
    edits: &'static [(Side, &'static str, &'static str)],
}

/// All of them.
pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        what: "A Service has no cluster IP, no IP families and no node ports; `CLUSTER-IP` is `<none>`.",
        why: "It is not of one cluster. Each member allocates these for its own shard (seed 002).",
        steps: r"svc|service|get all",
        edits: &[
            (Theirs, r"^ +clusterIP: \d.*\n", ""),
            (Theirs, r"^ +clusterIPs:\n +- \d.*\n", ""),
            (Theirs, r"^ +ipFamilies:\n +- IPv4\n", ""),
            (Theirs, r"^ +ipFamilyPolicy: SingleStack\n", ""),
            (Theirs, r"^ +(nodePort|healthCheckNodePort): \d+\n", ""),
            (Theirs, r"  10\.0\.0\.\d+  ", "  <none>  "),
            (Theirs, r"(\d+):\d{5}/TCP", "${1}/TCP"),
            (Theirs, r"^IP Family Policy:.*\n", ""),
            (Theirs, r"^(HealthCheck )?NodePort:.*\n", ""),
            (Both, r"^IP Families:.*\n", ""),
            (Theirs, r"^IPs?:  10.*\n", ""),
            (Ours, r"^IPs?:(  <none>)?\n", ""),
        ],
    },
    Difference {
        what: "A Service that asks for a certain cluster IP is refused; `None` is accepted.",
        why: "There is no address that would be free, or routed, in every member.",
        steps: r"--clusterip=10",
        edits: &[
            (Theirs, r"^service/fixed created\n", ""),
            (Ours, r"^! .*a federated Service has no cluster IP.*\nexit 1\n", ""),
        ],
    },
    Difference {
        what: "The Service `default/kubernetes` has no EndpointSlice.",
        why: "It is there for clients that look for it. A hub is reached by the address in its kubeconfig.",
        steps: r"-n default",
        edits: &[
            (Theirs, r"^\nNAME  ADDRESSTYPE.*\nendpointslice\.discovery\.k8s\.io/kubernetes .*\n", ""),
            (Both, r"^(TargetPort:  )\d+/TCP$", "${1}PORT/TCP"),
            (Theirs, r"^Endpoints:  [\d.]+:\d+$", "Endpoints:  <none>"),
        ],
    },
    Difference {
        what: "Kinds of one cluster are not served: nodes, volumes and storage, priority and runtime classes, \
               admission and flow control, certificate signing, device claims, controller revisions, …",
        why: "They belong to the members; the federation places workloads, members run them.",
        steps: r"api-(versions|resources)|get nodes|priorityclass",
        edits: &[
            (Theirs, NOT_SERVED, ""),
            (Theirs, r"^! .*nodes is forbidden.*\n", ""),
            (Ours, "^! error: the server doesn't have a resource type \"nodes\"\n", ""),
            (Theirs, r"^priorityclass.*created\n", ""),
            (Ours, r"^! error: failed to create priorityclass: .*\nexit 1\n", ""),
        ],
    },
    Difference {
        what: "Pods can be read, not written.",
        why: "They are a view of the members' pods. Make a Deployment or another workload instead.",
        steps: r"api-resources|kubectl run",
        edits: &[
            (Theirs, r"^(pods .*true  Pod  ).*(  all)$", "${1}get,list,watch${2}"),
            (Theirs, r"^pods\n", ""),
            (Theirs, r"^pod/pod created\n", ""),
            (Ours, r"^! Error from server \(MethodNotAllowed\): .*\nexit 1\n", ""),
        ],
    },
    Difference {
        what: "Groups `landfall.dev` and `networking.gke.io` are served, and the roles admin, edit and view know them.",
        why: "They are the federation's own kinds.",
        steps: r"api-(versions|resources)|create rolebinding more",
        edits: &[(Ours, r"^.*(landfall\.dev|networking\.gke\.io).*\n", "")],
    },
    Difference {
        what: "The bootstrap roles of nodes, of kube-proxy, of the scheduler and of single controllers do not exist.",
        why: "The hub has none of them.",
        steps: r"-l kubernetes.io/bootstrapping",
        edits: &[(Theirs, BOOTSTRAP_ROLES, "")],
    },
    Difference {
        what: "`kubectl explain` names the values that a field takes, without a sentence for each.",
        why: "Those sentences are in Kubernetes' source only, not in the packages that we make our documents from.",
        steps: r"explain",
        edits: &[(Theirs, "^(     - `\"[^\"]*\"`).*\n(?:    [^ \n].*\n)*", "${1}\n")],
    },
    Difference {
        what: "Server-side apply refuses unknown and mistyped fields with 400 and names all of them, as create does.",
        why: "Kubernetes answers 500 in the words of its merge library, with some of them.",
        steps: r"apply --server-side -f bad-(fields|type)",
        edits: &[
            (Ours, r"^! Error from server \(BadRequest\): Deployment in version .*\n", ""),
            (Theirs, r"^! Error from server: failed to create typed patch object.*\n(! +\..*\n)*", ""),
        ],
    },
    Difference {
        what: "A resourceVersion that is no number is refused with 400 by get and watch too.",
        why: "Kubernetes does so for lists only; for get and watch it answers 500.",
        steps: r"resourceVersion=nonsense",
        edits: &[(
            Ours,
            r"^! Error from server \(BadRequest\): invalid resource version: ",
            "! Error from server: ",
        )],
    },
    Difference {
        what: "A resourceVersion that is no number in an object to replace is a conflict (409).",
        why: "It is not the current one. Kubernetes answers 500.",
        steps: r#"resourceVersion: "x""#,
        edits: &[
            (
                Ours,
                r"^(! Error from server) \(Conflict\): (.*): Operation cannot be .*$",
                "${1}: ${2}: WORDS",
            ),
            (Theirs, r"strconv\.ParseUint: .*$", "WORDS"),
        ],
    },
    Difference {
        what: "A conflict of uids does not show where an object is stored.",
        why: "Kubernetes shows its key in etcd.",
        steps: r"uid: other",
        edits: &[(Theirs, r"StorageError: invalid object, Code: 4, Key: .*, AdditionalErrorMsg: ", "")],
    },
    Difference {
        what: "A strategic patch with a value of the wrong type is refused in the words that create uses.",
        why: "Kubernetes converts such a patch by other code, which says `unrecognized type: int32`.",
        steps: r#"patch deploy web -p '."spec":."replicas":"many"#,
        edits: &[
            (Ours, r"json: cannot unmarshal string into Go struct field .*$", "WORDS"),
            (Theirs, r"unrecognized type: int32$", "WORDS"),
        ],
    },
    Difference {
        what: "The keys of raw JSON stand in another order.",
        why: "JSON objects have none.",
        steps: r"delete --raw .*/configmaps/one|ReplicaSet",
        edits: &[
            (
                Ours,
                r#"^\{"apiVersion":"v1","details":(\{.*\}),"kind":"Status",.*"status":"Success"\}$"#,
                "SUCCESS",
            ),
            (
                Theirs,
                r#"^\{"kind":"Status","apiVersion":"v1",.*"status":"Success","details":(\{.*\})\}$"#,
                "SUCCESS",
            ),
            (Both, r#"patch: Invalid value: "\{.*\}": "#, "patch: Invalid value: OBJECT: "),
        ],
    },
    Difference {
        what: "What exactly is wrong with malformed JSON inside a continue token is worded otherwise.",
        why: "Two JSON parsers. Code and reason are the same.",
        steps: r"continue=nonsense",
        edits: &[(Both, r"(continue key is not valid: ).*$", "${1}WORDS")],
    },
];

/// Lines of `api-versions` and `api-resources` about kinds of one cluster.
const NOT_SERVED: &str = r"(?x)^(
    (admissionregistration|apiregistration|certificates|node|resource|scheduling|storage)\.k8s\.io/v1 |
    flowcontrol\.apiserver\.k8s\.io/v1 |
    (bindings | componentstatuses | nodes | persistentvolumes | persistentvolumeclaims | podtemplates |
     ipaddresses | servicecidrs | controllerrevisions | apiservices | certificatesigningrequests | flowschemas |
     prioritylevelconfigurations | runtimeclasses | deviceclasses | resource(claims|claimtemplates|slices) |
     priorityclasses | csi\w+ | storageclasses | volumeattachments | volumeattributesclasses |
     mutating\w+ | validating\w+)([.\ ].*)?
)\n";

/// Bootstrap roles and bindings of what a hub has not.
const BOOTSTRAP_ROLES: &str = r"(?x)^clusterrole(binding)?\.rbac\.authorization\.k8s\.io/system:(
    certificates\..* | controller:.* | heapster | kube-.* | kubelet-.* |
    legacy-.* | node.* | persistent-volume-provisioner | volume-scheduler
)\n";

/// Steps that an older kubectl ends otherwise, by a part of their command, and why.
pub(super) const NEWER: &[(&str, &str)] = &[
    ("--name=second --min=2 --max=5 --cpu=80%", "older ones call the flag --cpu-percent"),
    ("get hpa second", "which therefore is not there"),
    ("--as-user-extra", "a flag of 1.34"),
];

/// Edits both sides (`[ours, theirs]`) of a step by the differences that are meant; notes which were seen.
pub(super) fn apply(step: &Step, sides: &mut [Vec<String>; 2], used: &mut BTreeSet<&'static str>) {
    for difference in DIFFERENCES {
        if !Regex::new(difference.steps).unwrap().is_match(&step.command) {
            continue;
        }
        for (side, pattern, with) in difference.edits {
            let pattern = Regex::new(&format!("(?m){pattern}")).unwrap();
            for (at, lines) in sides.iter_mut().enumerate() {
                let meant = matches!((side, at), (Both, _) | (Ours, 0) | (Theirs, 1));
                let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
                if meant && pattern.is_match(&text) {
                    used.insert(difference.what);
                    *lines = pattern.replace_all(&text, *with).lines().map(str::to_owned).collect();
                }
            }
        }
    }
}

/// The page for users.
pub(super) fn page() -> String {
    let mut text = String::from(
        "# How a hub differs from Kubernetes\n\n\
         `crates/landfall/tests/it/kubectl` is a script of kubectl commands. A test runs it on a hub and on a real\n\
         kube-apiserver 1.36, and compares output, errors and exit codes step by step. This table is all that may differ;\n\
         the test fails on anything else, and this page is made from the test's own table.\n\n\
         | difference | why |\n|---|---|\n",
    );
    for difference in DIFFERENCES {
        text.push_str(&format!("| {} | {} |\n", difference.what, difference.why));
    }
    text
}
