#!/bin/sh
# What a user does with a cluster, with kubectl and curl only; prints what every Kubernetes must say:
#
#   KUBECONFIG=… CONTEXT=us-east tests/members/script.sh | diff tests/members/expected.txt -
#
# CONTEXT is a cluster with two nodes, of a playground or of a rig. KUBECTL names another kubectl. What differs by
# nature is replaced: addresses, ages, the random ends of names, and the name of the cluster.
set -eu
cd "$(dirname "$0")"
export LC_ALL=C
context=${CONTEXT:?names the cluster} namespace=members patience=120s

cluster() { "${KUBECTL:-kubectl}" --context "$context" "$@"; }
k() { cluster --namespace "$namespace" "$@"; }
step() { printf '\n== %s\n' "$*"; }

# The letters that Kubernetes makes names of.
letters='[bcdfghjklmnpqrstvwxz2456789]'
# Without what differs by nature.
normal() {
    sed -E -e "s/-$letters{8,10}\\b/-HASH/g" -e "s/-$letters{5}\\b/-RANDOM/g" -e "s/\\b$context\\b/CLUSTER/g" \
        -e 's/\b([0-9]{1,3}\.){3}[0-9]{1,3}\b/IP/g' -e 's/:[0-9]{5}\b/:PORT/g' -e 's/\([0-9a-f-]{36}\)/(UID)/' \
        -e 's/ +([0-9]+[dhms])+$//' -e 's/ +AGE$//' -e 's/ +/ /g' -e 's/ $//'
}
# Prints a table with these columns of these objects: show WHAT COLUMN:PATH,… [kubectl's options]
show() {
    what=$1 columns=$2
    shift 2
    k get "$what" -o "custom-columns=$columns" "$@" | normal
}
# The same with the rows in order, and without their names.
rows() { show "$@" --no-headers | sort; }
# A field of an object: field OBJECT PATH
field() { k get "$1" -o "jsonpath={$2}"; }
# Looks until a command prints this: until_is WANT COMMAND…
until_is() {
    want=$1 tries=0
    shift
    until seen=$("$@" 2>&1) && [ "$seen" = "$want" ]; do
        tries=$((tries + 1))
        [ $tries -lt 400 ] || { echo "$*: never $want, but $seen" && return; }
        sleep 0.2
    done
    echo "$want"
}
# The last line: how many come before is a matter of luck.
rolled_out() { k rollout status "$1" --timeout=$patience | tail -n 1; }
count() { wc -l | tr -d ' '; }
pods() { k get pods -l "app=$1" -o name | sed 's/^pod.//' | sort; }
pod_count() { pods "$1" | count; }
# What kubectl shows as the status of a pod.
status_of() { k get pod "$1" --no-headers | awk '{print $3}'; }
# What was told about objects: told KIND NAMES (a pattern) REASONS (a pattern)
told() {
    k get events --field-selector "involvedObject.kind=$1" --no-headers \
        -o 'custom-columns=:.involvedObject.name,:.type,:.reason,:.message' |
        normal | grep -E "^$2[^ ]* [^ ]* ($3) " | sort -u
}
# A request to the load balancer, asked again while that is being set up.
ask() {
    curl -sS --fail --noproxy '*' --max-time 5 --retry 20 --retry-delay 1 --retry-all-errors "http://$address:$port$1"
}
# The fields of an answer, one on a line.
fields() { tr ',' '\n' | tr -d '{} "'; }
# Who answers: by turns or by lot, a few pods have all done so after sixty requests.
answering() {
    tries=0
    while [ $tries -lt 60 ]; do
        ask / | fields | sed -n 's/^pod://p'
        tries=$((tries + 1))
    done | sort -u
}
# Whether those whom a command names are the pods of an app, all of them.
just_pods() {
    app=$1
    shift
    if [ "$("$@")" = "$(pods "$app")" ]; then echo "all pods of $app, and nobody else"; else echo 'others'; fi
}
listed() {
    k get endpointslices -l "kubernetes.io/service-name=$1" \
        -o 'jsonpath={range .items[*].endpoints[?(@.conditions.ready==true)]}{.targetRef.name}{"\n"}{end}' | sort
}
revisions() {
    rows replicasets 'A:.metadata.annotations.deployment\.kubernetes\.io/revision,B:.spec.replicas,C:.status.readyReplicas'
}

step 'manifests are applied'
cluster create namespace "$namespace"
k apply -f web.yaml -f others.yaml
for object in deployment/web daemonset/agent statefulset/store; do rolled_out $object; done
k wait --for=condition=Complete job/hello --timeout=$patience
k wait --for=condition=Failed job/failing --timeout=$patience
k wait --for='jsonpath={.status.loadBalancer.ingress[0].ip}' service/web-public service/web-local --timeout=$patience

step 'kubectl get shows them'
k get deployments,statefulsets,daemonsets,services | normal
k get pods --sort-by=.metadata.name | normal
rows jobs 'A:.metadata.name,B:.status.succeeded,C:.status.failed,D:.status.conditions[*].reason'
rows replicasets 'A:.metadata.ownerReferences[0].name,B:.spec.replicas,C:.status.readyReplicas'
show deployment/web 'TYPE:.status.conditions[*].type,STATUS:.status.conditions[*].status,REASON:.status.conditions[*].reason'

step 'pods are scheduled and started'
rows pods 'A:.spec.nodeName' -l app=web | uniq
rows pods 'A:.spec.nodeName,B:.status.phase,C:.status.qosClass,D:.metadata.labels.topology\.kubernetes\.io/zone' -l app=agent
rows pods 'A:.metadata.name,B:.spec.hostname,C:.spec.subdomain,D:.metadata.labels.apps\.kubernetes\.io/pod-index' -l app=store
show pod/store-0 'TYPE:.status.conditions[*].type,STATUS:.status.conditions[*].status'
told Pod store-0 'Pulled|Created|Started'
told StatefulSet store '.*'
told DaemonSet agent '.*'
told Deployment web '.*'
told Job '(hello|failing)' '.*'

step 'endpoint slices list them'
for service in web web-public store; do
    until_is "all pods of ${service%-public}, and nobody else" just_pods ${service%-public} listed $service
    rows endpointslices 'A:.metadata.ownerReferences[*].name,B:.addressType,C:.ports[*].name,D:.ports[*].port,E:.metadata.labels.endpointslice\.kubernetes\.io/managed-by,F:.endpoints[*].conditions' \
        -l kubernetes.io/service-name=$service
done

step 'the load balancer answers from all of them'
address=$(field service/web-public '.status.loadBalancer.ingress[0].ip') port=8080
until_is 'all pods of web, and nobody else' just_pods web answering
ask '/where?it=is' | fields | grep -E '^(cluster|namespace|path|method|query)' | sort | normal

step 'so does one that stays on the nodes with pods'
[ "$(field service/web-local .spec.healthCheckNodePort)" -ge 30000 ] && echo 'nodes can be asked about it'
address=$(field service/web-local '.status.loadBalancer.ingress[0].ip') port=8081
ask / | fields | grep -c '^pod:web-'
address=$(field service/web-public '.status.loadBalancer.ingress[0].ip') port=8080

step 'logs'
ask /find-me-in-the-log >/dev/null
found_in_logs() { k logs -l app=web --tail=-1 | grep -c find-me-in-the-log; }
until_is 1 found_in_logs
k logs job/failing
k logs -l batch.kubernetes.io/job-name=hello --prefix | normal

step 'a job that rests until it is told'
show job/resting 'TYPE:.status.conditions[*].type,STATUS:.status.conditions[*].status,REASON:.status.conditions[*].reason'
k patch job resting -p '{"spec":{"suspend":false}}'
k wait --for=condition=Complete job/resting --timeout=$patience
told Job resting '.*'

step 'scaled up and down'
k scale deployment/web --replicas=5
rolled_out deployment/web
until_is 'all pods of web, and nobody else' just_pods web listed web
k scale deployment/web --replicas=2
until_is 2 pod_count web
k get deployment web | normal
k scale statefulset/store --replicas=1
until_is store-0 pods store
told StatefulSet store SuccessfulDelete

step 'rolled out and back'
k set env deployment/web VERSION=two
rolled_out deployment/web
revisions
k rollout undo deployment/web 2>/dev/null
rolled_out deployment/web
revisions
k rollout history deployment/web
field deployment/web '.spec.template.spec.containers[0].env[*].name' && echo

step 'a rollout that never gets ready leaves the old pods in place'
k patch deployment/web -p '{"spec":{"template":{"spec":{"containers":[{"name":"web","readinessProbe":{"httpGet":{"path":"/status/503"}}}]}}}}'
k rollout status deployment/web --timeout=5s 2>&1 | tail -n 1
k get deployment web | normal
revisions
ask / >/dev/null && echo answers
k rollout undo deployment/web 2>/dev/null
rolled_out deployment/web

step 'a deleted pod is replaced'
until_is 2 pod_count web
before=$(pods web)
k delete "pod/$(pods web | head -n 1)" | normal
rolled_out deployment/web
until_is 2 pod_count web
[ "$before" != "$(pods web)" ] && echo 'by another'
until_is 'all pods of web, and nobody else' just_pods web listed web
until_is 'all pods of web, and nobody else' just_pods web answering

step 'ill pods are made'
k apply -f ill.yaml

step 'an autoscaler holds its lower bound'
k autoscale deployment web --min=3 --max=4 --cpu=80%
until_is 3 field deployment/web .spec.replicas
until_is 'web Normal SuccessfulRescale New size: 3; reason: Current number of replicas below Spec.MinReplicas' \
    told HorizontalPodAutoscaler web SuccessfulRescale
k delete hpa web

step 'ill pods say what ails them'
until_is Init:CrashLoopBackOff status_of begins
for pod in restarted crashing; do
    until_is CrashLoopBackOff field pod/$pod '.status.containerStatuses[0].state.waiting.reason'
    field pod/$pod '.status.containerStatuses[0].lastState.terminated.exitCode' && echo
done
k get pod unready nowhere huge | normal
field pod/unready '.status.conditions[?(@.type=="Ready")].message' && echo
k logs crashing
k get events --field-selector involvedObject.name=begins,reason=BackOff --no-headers \
    -o 'custom-columns=:.involvedObject.fieldPath,:.message' | normal
for pod in unready restarted crashing nowhere huge; do
    told Pod $pod 'Unhealthy|Killing|BackOff|FailedScheduling'
done

step 'a node is drained and used again'
k delete -f ill.yaml --grace-period=1
node=$(cluster get nodes -o 'jsonpath={.items[1].metadata.name}')
# Only our own; and which of them it had is a matter of luck.
k label pods -l app=web script=members >/dev/null
cluster drain "$node" --pod-selector=script=members --timeout=$patience 2>/dev/null | grep ^node | normal
cluster get nodes --no-headers | awk '{print $1, $2}' | normal
rolled_out deployment/web
rows pods 'A:.spec.nodeName' -l app=web
cluster uncordon "$node" | normal

step 'a daemon set follows its selector'
k patch daemonset agent -p '{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":"'"$node"'"}}}}}'
until_is 1 field daemonset/agent .status.desiredNumberScheduled
until_is 1 pod_count agent

step 'everything is deleted'
k delete -f web.yaml -f others.yaml
until_is '' k get pods -o name
until_is '' k get endpointslices -o name
cluster delete namespace "$namespace"
cluster get namespace "$namespace" 2>&1 || true
