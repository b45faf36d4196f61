//! The table of bootstrap roles and bindings. Facts of Kubernetes, plus our own kinds for admin, edit and view.

use super::super::Rule;

/// One rule in short.
pub(super) enum Short {
    /// Verbs, groups, resources.
    On(&'static [&'static str], &'static [&'static str], &'static [&'static str]),
    /// Verbs, paths.
    Urls(&'static [&'static str], &'static [&'static str]),
}

impl Short {
    /// The rule, its lists sorted as Kubernetes writes them (paths stay as they are).
    pub(super) fn build(&self) -> Rule {
        let mut rule = match self {
            Self::On(verbs, groups, resources) => Rule::resources(verbs, groups, resources),
            Self::Urls(verbs, urls) => Rule::urls(verbs, urls),
        };
        for list in [&mut rule.verbs, &mut rule.groups, &mut rule.resources, &mut rule.urls] {
            list.sort_unstable();
        }
        rule
    }
}

/// One ClusterRole.
pub(super) struct Row {
    /// Its name.
    pub(super) name: &'static str,
    /// The aggregated role it feeds.
    pub(super) aggregate_to: Option<&'static str>,
    /// Its rules.
    pub(super) rules: &'static [Short],
}

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "update", "patch", "delete", "deletecollection"];
const READ_WRITE: &[&str] =
    &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
const CORE: &[&str] = &[""];
const APPS: &[&str] = &["apps"];
const BATCH: &[&str] = &["batch"];
const AUTOSCALING: &[&str] = &["autoscaling"];
const EXTENSIONS: &[&str] = &["extensions"];
const POLICY: &[&str] = &["policy"];
const NETWORKING: &[&str] = &["networking.k8s.io"];
const DISCOVERY: &[&str] = &["discovery.k8s.io"];
const RESOURCE: &[&str] = &["resource.k8s.io"];
const EVENTS: &[&str] = &["", "events.k8s.io"];
const AUTHORIZATION: &[&str] = &["authorization.k8s.io"];
const AUTHENTICATION: &[&str] = &["authentication.k8s.io"];
const RBAC: &[&str] = &["rbac.authorization.k8s.io"];
const COORDINATION: &[&str] = &["coordination.k8s.io"];
const LANDFALL: &[&str] = &["landfall.dev"];
const LANDFALL_AND_GKE: &[&str] = &["landfall.dev", "networking.gke.io"];

/// ClusterRoles whose rules are gathered from others: name and the role they feed in turn.
pub(super) const AGGREGATED: &[(&str, Option<&str>)] = &[
    ("admin", None),
    ("edit", Some("admin")),
    ("view", Some("edit")),
    ("landfall-admin", None),
    ("landfall-ingress-admin", Some("landfall-admin")),
    ("landfall-ingress-user", Some("landfall-ingress-admin")),
];

/// ClusterRoleBindings: the role, which gives the name, and the groups.
pub(super) const BINDINGS: &[(&str, &[&str])] = &[
    ("cluster-admin", &["system:masters"]),
    ("system:monitoring", &["system:monitoring"]),
    ("system:discovery", &["system:authenticated"]),
    ("system:basic-user", &["system:authenticated"]),
    ("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
    ("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
];

/// ClusterRoles with rules of their own.
pub(super) const ROLES: &[Row] = &[
    Row {
        name: "cluster-admin",
        aggregate_to: None,
        rules: &[Short::On(&["*"], &["*"], &["*"]), Short::Urls(&["*"], &["*"])],
    },
    Row {
        name: "system:discovery",
        aggregate_to: None,
        rules: &[Short::Urls(
            &["get"],
            &[
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/healthz",
                "/livez",
                "/openapi",
                "/openapi/*",
                "/readyz",
                "/version",
                "/version/",
            ],
        )],
    },
    Row {
        name: "system:monitoring",
        aggregate_to: None,
        rules: &[
            Short::Urls(
                &["get"],
                &[
                    "/flagz",
                    "/healthz",
                    "/healthz/*",
                    "/livez",
                    "/livez/*",
                    "/metrics",
                    "/metrics/slis",
                    "/readyz",
                    "/readyz/*",
                    "/statusz",
                ],
            ),
            Short::On(&["get"], CORE, &["nodes/metrics"]),
        ],
    },
    Row {
        name: "system:basic-user",
        aggregate_to: None,
        rules: &[
            Short::On(&["create"], AUTHORIZATION, &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
            Short::On(&["create"], AUTHENTICATION, &["selfsubjectreviews"]),
        ],
    },
    Row {
        name: "system:public-info-viewer",
        aggregate_to: None,
        rules: &[Short::Urls(&["get"], &["/healthz", "/livez", "/readyz", "/version", "/version/"])],
    },
    Row {
        name: "system:auth-delegator",
        aggregate_to: None,
        rules: &[
            Short::On(&["create"], AUTHENTICATION, &["tokenreviews"]),
            Short::On(&["create"], AUTHORIZATION, &["subjectaccessreviews"]),
        ],
    },
    Row {
        name: "system:service-account-issuer-discovery",
        aggregate_to: None,
        rules: &[Short::Urls(
            &["get"],
            &[
                "/.well-known/openid-configuration",
                "/.well-known/openid-configuration/",
                "/openid/v1/jwks",
                "/openid/v1/jwks/",
            ],
        )],
    },
    Row {
        name: "system:aggregate-to-admin",
        aggregate_to: Some("admin"),
        rules: &[
            Short::On(&["create"], AUTHORIZATION, &["localsubjectaccessreviews"]),
            Short::On(READ_WRITE, RBAC, &["roles", "rolebindings"]),
        ],
    },
    Row {
        name: "system:aggregate-to-edit",
        aggregate_to: Some("edit"),
        rules: &[
            Short::On(
                READ,
                CORE,
                &["pods/attach", "pods/proxy", "pods/exec", "pods/portforward", "secrets", "services/proxy"],
            ),
            Short::On(&["impersonate"], CORE, &["serviceaccounts"]),
            Short::On(WRITE, CORE, &["pods", "pods/attach", "pods/proxy", "pods/exec", "pods/portforward"]),
            Short::On(&["create"], CORE, &["pods/eviction"]),
            Short::On(
                WRITE,
                CORE,
                &[
                    "replicationcontrollers",
                    "replicationcontrollers/scale",
                    "serviceaccounts",
                    "services",
                    "services/proxy",
                    "persistentvolumeclaims",
                    "configmaps",
                    "secrets",
                ],
            ),
            Short::On(&["create"], CORE, &["serviceaccounts/token"]),
            Short::On(WRITE, EVENTS, &["events"]),
            Short::On(
                WRITE,
                APPS,
                &[
                    "statefulsets",
                    "statefulsets/scale",
                    "daemonsets",
                    "deployments",
                    "deployments/scale",
                    "deployments/rollback",
                    "replicasets",
                    "replicasets/scale",
                ],
            ),
            Short::On(WRITE, AUTOSCALING, &["horizontalpodautoscalers"]),
            Short::On(WRITE, BATCH, &["jobs", "cronjobs"]),
            Short::On(
                WRITE,
                EXTENSIONS,
                &[
                    "daemonsets",
                    "deployments",
                    "deployments/scale",
                    "deployments/rollback",
                    "ingresses",
                    "replicasets",
                    "replicasets/scale",
                    "replicationcontrollers/scale",
                    "networkpolicies",
                ],
            ),
            Short::On(WRITE, POLICY, &["poddisruptionbudgets"]),
            Short::On(WRITE, NETWORKING, &["networkpolicies", "ingresses"]),
            Short::On(READ_WRITE, COORDINATION, &["leases"]),
            Short::On(WRITE, RESOURCE, &["resourceclaims", "resourceclaimtemplates"]),
            Short::On(WRITE, LANDFALL_AND_GKE, &["multiclusteringresses", "multiclusterservices"]),
            Short::On(WRITE, LANDFALL, &["ingressclaims", "trafficpolicies"]),
        ],
    },
    Row {
        name: "system:aggregate-to-view",
        aggregate_to: Some("view"),
        rules: &[
            Short::On(
                READ,
                CORE,
                &[
                    "pods",
                    "replicationcontrollers",
                    "replicationcontrollers/scale",
                    "serviceaccounts",
                    "services",
                    "services/status",
                    "endpoints",
                    "persistentvolumeclaims",
                    "persistentvolumeclaims/status",
                    "configmaps",
                ],
            ),
            Short::On(
                READ,
                CORE,
                &[
                    "limitranges",
                    "resourcequotas",
                    "bindings",
                    "pods/status",
                    "resourcequotas/status",
                    "namespaces/status",
                    "replicationcontrollers/status",
                    "pods/log",
                ],
            ),
            Short::On(READ, CORE, &["namespaces"]),
            Short::On(READ, EVENTS, &["events"]),
            Short::On(READ, DISCOVERY, &["endpointslices"]),
            Short::On(
                READ,
                APPS,
                &[
                    "controllerrevisions",
                    "statefulsets",
                    "statefulsets/status",
                    "statefulsets/scale",
                    "daemonsets",
                    "daemonsets/status",
                    "deployments",
                    "deployments/status",
                    "deployments/scale",
                    "replicasets",
                    "replicasets/status",
                    "replicasets/scale",
                ],
            ),
            Short::On(READ, AUTOSCALING, &["horizontalpodautoscalers", "horizontalpodautoscalers/status"]),
            Short::On(READ, BATCH, &["jobs", "cronjobs", "cronjobs/status", "jobs/status"]),
            Short::On(
                READ,
                EXTENSIONS,
                &[
                    "daemonsets",
                    "daemonsets/status",
                    "deployments",
                    "deployments/scale",
                    "deployments/status",
                    "ingresses",
                    "ingresses/status",
                    "replicasets",
                    "replicasets/scale",
                    "replicasets/status",
                    "replicationcontrollers/scale",
                    "networkpolicies",
                ],
            ),
            Short::On(READ, POLICY, &["poddisruptionbudgets", "poddisruptionbudgets/status"]),
            Short::On(READ, NETWORKING, &["networkpolicies", "ingresses", "ingresses/status"]),
            Short::On(READ, RESOURCE, &["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"]),
            Short::On(
                READ,
                LANDFALL_AND_GKE,
                &[
                    "multiclusteringresses",
                    "multiclusteringresses/status",
                    "multiclusterservices",
                    "multiclusterservices/status",
                ],
            ),
            Short::On(
                READ,
                LANDFALL,
                &[
                    "ingressclaims",
                    "ingressclaims/status",
                    "trafficpolicies",
                    "trafficpolicies/status",
                    "trafficplans",
                    "trafficplans/status",
                    "routeplans",
                    "routeplans/status",
                ],
            ),
        ],
    },
    // Who has ingresses: they, and claims for groups to serve them; groups can be seen, to know what to ask for.
    Row {
        name: "system:landfall:aggregate-to-ingress-user",
        aggregate_to: Some("landfall-ingress-user"),
        rules: &[
            Short::On(READ_WRITE, NETWORKING, &["ingresses"]),
            Short::On(READ, NETWORKING, &["ingresses/status", "ingressclasses"]),
            Short::On(READ_WRITE, LANDFALL, &["ingressclaims"]),
            Short::On(READ, LANDFALL, &["ingressclaims/status", "routeplans", "routeplans/status"]),
            Short::On(
                READ,
                LANDFALL,
                &[
                    "ingressreplicasets",
                    "ingressreplicasets/status",
                    "ingressvipranges",
                    "ingressvipranges/status",
                ],
            ),
            Short::On(READ, EVENTS, &["events"]),
        ],
    },
    // Who has groups: they, and where their addresses come from.
    Row {
        name: "system:landfall:aggregate-to-ingress-admin",
        aggregate_to: Some("landfall-ingress-admin"),
        rules: &[
            Short::On(
                READ_WRITE,
                LANDFALL,
                &["ingressreplicasets", "ingressreplicasets/scale", "ingressvipranges"],
            ),
            Short::On(READ_WRITE, NETWORKING, &["ingressclasses"]),
            Short::On(READ, LANDFALL, &["groupplans", "edges", "clusters"]),
        ],
    },
    // Who has the federation.
    Row {
        name: "system:landfall:aggregate-to-admin",
        aggregate_to: Some("landfall-admin"),
        rules: &[
            Short::On(READ_WRITE, LANDFALL_AND_GKE, &["multiclusteringresses", "multiclusterservices"]),
            Short::On(READ_WRITE, LANDFALL, &["clusters", "dnszones", "edges", "trafficpolicies"]),
            Short::On(READ, LANDFALL, &["*"]),
        ],
    },
];
