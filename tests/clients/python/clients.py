"""Uses a hub as programs with the Python client do, and fails on any difference.

A watch runs and resumes while objects are written, and must end with the same state as a list. Besides: typed and
dynamic creates, patches, deletes, refusals.
"""

import argparse
import random
import sys
import threading
import time

import yaml
from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

NAMESPACE = "python-client"


def expect(holds, message):
    if not holds:
        raise AssertionError(message)


def refused(code, reason, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ApiException as error:
        status = yaml.safe_load(error.body)
        expect((error.status, status["reason"]) == (code, reason), f"{error.status} {error.body}")
        return
    raise AssertionError(f"not refused: {call}")


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"part": "busy"}), data=data)


def typed(api):
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    made = core.create_namespaced_config_map(NAMESPACE, config_map("one", a="1"))
    expect(made.metadata.uid and made.data == {"a": "1"}, made)
    refused(409, "AlreadyExists", core.create_namespaced_config_map, NAMESPACE, config_map("one"))
    refused(404, "NotFound", core.read_namespaced_config_map, "none", NAMESPACE)
    merged = core.patch_namespaced_config_map("one", NAMESPACE, {"data": {"b": "2"}})
    expect(merged.data == {"a": "1", "b": "2"}, merged)
    listed = core.patch_namespaced_config_map("one", NAMESPACE, [{"op": "remove", "path": "/data/a"}])
    expect(listed.data == {"b": "2"}, listed)
    made.data = {"c": "3"}
    refused(409, "Conflict", core.replace_namespaced_config_map, "one", NAMESPACE, made)
    listed.data = {"c": "3"}
    expect(core.replace_namespaced_config_map("one", NAMESPACE, listed).data == {"c": "3"}, "replaced")

    pods = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": "web"}),
        spec=client.V1PodSpec(containers=[client.V1Container(name="web", image="web:1")]),
    )
    spec = client.V1DeploymentSpec(replicas=1, selector={"matchLabels": {"app": "web"}}, template=pods)
    apps.create_namespaced_deployment(
        NAMESPACE, client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)
    )
    scaled = apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 4}})
    expect(scaled.spec.replicas == 4, scaled)
    status = apps.patch_namespaced_deployment_status("web", NAMESPACE, {"status": {"replicas": 4}})
    expect((status.status.replicas, status.spec.replicas) == (4, 4), status)
    apps.delete_namespaced_deployment("web", NAMESPACE)
    refused(404, "NotFound", apps.read_namespaced_deployment, "web", NAMESPACE)
    expect(client.VersionApi(api).get_code().major == "1", "version")


def dynamic_kinds(api):
    anything = dynamic.DynamicClient(api)
    services = anything.resources.get(api_version="v1", kind="Service")
    body = {"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}}
    made = services.create(body=body, namespace=NAMESPACE)
    expect(made.spec.ports[0].targetPort == 80, made)
    applied = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "svc", "labels": {"x": "y"}}}
    after = services.server_side_apply(body=applied, name="svc", namespace=NAMESPACE, field_manager="python")
    expect(after.metadata.labels.x == "y", after)

    definitions = anything.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definitions.create(body={
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "tools.example.net"},
        "spec": {
            "group": "example.net", "scope": "Namespaced",
            "names": {"plural": "tools", "singular": "tool", "kind": "Tool"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    })
    for event in definitions.watch(field_selector="metadata.name=tools.example.net", timeout=60):
        conditions = event["object"].status.conditions or []
        if any(c.type == "Established" and c.status == "True" for c in conditions):
            break
    tools = find(anything, "example.net/v1", "Tool")
    tools.create(body={"apiVersion": "example.net/v1", "kind": "Tool", "metadata": {"name": "t"}, "spec": {"a": [1]}},
                 namespace=NAMESPACE)
    patched = tools.patch(body={"spec": {"b": 2}}, name="t", namespace=NAMESPACE,
                          content_type="application/merge-patch+json")
    expect(patched.spec.to_dict() == {"a": [1], "b": 2}, patched)
    tools.delete(name="t", namespace=NAMESPACE)
    expect(tools.get(namespace=NAMESPACE).items == [], "no tools left")


def find(anything, api_version, kind):
    """Discovery may show a new kind a moment after it is established."""
    for _ in range(100):
        try:
            return anything.resources.get(api_version=api_version, kind=kind)
        except dynamic.exceptions.ResourceNotFoundError:
            anything.resources.invalidate_cache()
            time.sleep(0.1)
    raise AssertionError(f"{kind} is never discovered")


def write(api, until, failures):
    core, luck = client.CoreV1Api(api), random.Random(1)
    while time.monotonic() < until:
        name, value = f"busy-{luck.randrange(30):02}", str(luck.random())
        try:
            match luck.randrange(3):
                case 0:
                    core.create_namespaced_config_map(NAMESPACE, config_map(name, v=value))
                case 1:
                    core.patch_namespaced_config_map(name, NAMESPACE, {"data": {"v": value}})
                case 2:
                    core.delete_namespaced_config_map(name, NAMESPACE)
        except ApiException as error:
            if error.status not in (404, 409):
                failures.append(error)
                return


def watch_under_writes(api, seconds):
    """Follows from a list on, in short watches that resume each other, until nothing is written any more."""
    core, failures = client.CoreV1Api(api), []
    first = core.list_namespaced_config_map(NAMESPACE, limit=500)
    have = {item.metadata.name: item.metadata.resource_version for item in first.items}
    version, events, watches = first.metadata.resource_version, 0, 0
    writer = threading.Thread(target=write, args=(api, time.monotonic() + seconds, failures))
    writer.start()
    while True:
        last = not writer.is_alive()
        watches += 1
        stream = watch.Watch().stream(
            core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=3,
            allow_watch_bookmarks=True,
        )
        for event in stream:
            if event["type"] == "BOOKMARK":
                # The client leaves these as they came. One may say again where the last event was.
                mark = event["object"]["metadata"]["resourceVersion"]
                expect(int(mark) >= int(version), f"{mark} after {version}")
                version = mark
                continue
            meta = event["object"].metadata
            expect(int(meta.resource_version) > int(version), f"{meta.resource_version} after {version}")
            version = meta.resource_version
            events += 1
            if event["type"] == "DELETED":
                del have[meta.name]
            else:
                expect((event["type"] == "ADDED") == (meta.name not in have), f"{event['type']} {meta.name}")
                have[meta.name] = version
        if last:
            break
    writer.join()
    expect(not failures, failures)
    now = core.list_namespaced_config_map(NAMESPACE)
    want = {item.metadata.name: item.metadata.resource_version for item in now.items}
    expect(have == want, f"watched {have}\nlisted {want}")
    expect(events > 20 and watches > 1, f"{events} events in {watches} watches")
    print(f"   {events} events in {watches} watches")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    api = config.new_client_from_config(arguments.kubeconfig)
    typed(api)
    print("ok typed")
    dynamic_kinds(api)
    print("ok dynamic")
    watch_under_writes(api, arguments.seconds)
    print("ok watch under writes")


if __name__ == "__main__":
    sys.exit(main())
