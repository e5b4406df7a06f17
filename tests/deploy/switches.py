"""Switches of the chart's values, which settings exclude each other, and few releases in which every setting occurs."""

from __future__ import annotations

from tests.deploy.charts import Values, merged

POD: Values = {
    "annotations": {"team": "search"},
    "labels": {"cost-centre": "42"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "search", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
    "priorityClassName": "high",
    "schedulerName": "volcano",
    "runtimeClassName": "gvisor",
    "volumes": [{"name": "more", "emptyDir": {"sizeLimit": "1Gi"}}],
    "volumeMounts": [{"name": "more", "mountPath": "/more"}],
    "env": [{"name": "HIRAG_DEBUG", "value": "1"}],
}

ENDPOINT: Values = {
    "base_url": "http://vllm.models:8000/v1",
    "model": "m",
    "api_key": "${LLM_KEY}",
    "rpm": 1_000_000,
    "tpm": "${TPM:-100000}",
    "price": {"input": 0.15, "output": 0.6},
}

GATEWAYS: Values = {
    "networkPolicy.gateways": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}]
}

ROUTE: Values = {"enabled": True, "parentRefs": [{"name": "gateway", "namespace": "gateways", "sectionName": "https"}]}

SWITCHES: dict[str, dict[str, Values]] = {
    "builds": {
        "none": {},
        "once": {"build.once": True, "build.inputs": ["s3://bucket/docs"]},
        "schedule": {"build.schedule.enabled": True, "build.inputs": ["s3://bucket/it's $(here); `x`"]},
        "both": {
            "build.once": True,
            "build.schedule": {"enabled": True, "suspend": True},
            "build.inputs": ["/data/a", "/data/b"],
        },
    },
    "executor": {"ray": {}, "inline": {"config.execution.executor": "inline"}},
    "gpu": {
        "off": {},
        "on": {
            "config.kernels": "gpu",
            "build.ray.gpu": {"enabled": True, "pod": POD, "image": {"repository": "hirag-dist-gpu"}},
        },
        "fixed": {
            "build.ray.gpu": {"enabled": True, "minReplicas": 1},
            "build.ray.gpu.image": {"repository": "g", "digest": f"sha256:{'1' * 64}"},
            "build.ray.cpu.minReplicas": 1,
            "build.ray.autoscaling.enabled": False,
        },
    },
    "ray autoscaling": {"on": {}, "off": {"build.ray.autoscaling.enabled": False, "build.ray.cpu.minReplicas": 2}},
    "workers": {"by the cluster": {}, "set": {"config.execution.workers": 3}},
    "budget": {
        "none": {},
        "usd": {"build.maxUsd": 12.5},
        "tokens": {"build.maxTokens": 50_000_000, "build.activeDeadlineSeconds": 86_400},
        "retries": {"build.backoffLimit": 3},
    },
    "incomplete": {"fail": {}, "accept": {"build.incomplete": "accept"}, "require": {"build.requireComplete": True}},
    "query": {"on": {}, "off": {"query.enabled": False}},
    "autoscaling": {
        "off": {},
        "on": {"query.autoscaling.enabled": True},
        "own": {
            "query.autoscaling.enabled": True,
            "query.autoscaling.behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
            "query.autoscaling.metrics": [
                {
                    "type": "Pods",
                    "pods": {"metric": {"name": "waiting"}, "target": {"type": "AverageValue", "averageValue": "5"}},
                }
            ],
            "query.minReadySeconds": 5,
        },
    },
    "ray auth": {
        "token": {},
        "disabled": {"build.ray.auth.mode": "disabled"},
        "secret": {"build.ray.auth": {"mode": "token", "existingSecret": "ray"}},
    },
    "after": {
        "nothing": {},
        "prune": {"build.prune.enabled": True},
        "both": {"build.prune": {"enabled": True, "keep": 0, "olderThan": "12h"}, "build.retryLetters": True},
    },
    "entry": {
        "none": {},
        "ingress": GATEWAYS
        | {"query.ingress": {"enabled": True, "className": "nginx", "hosts": ["rag.example.com"], "tlsSecret": "t"}},
        "route": GATEWAYS | {"query.grpcRoute": ROUTE | {"hostnames": ["rag.example.com"]}},
    },
    "page": {
        "none": {},
        "inside": {"query.page": {"enabled": True, "names": ["rag.internal"]}},
        "mutual": {"query.page": {"enabled": True, "clientCertificateSecret": "page"}},
        "ingress": GATEWAYS
        | {"query.page.enabled": True, "query.page.ingress": {"enabled": True, "hosts": ["ask.example.com"]}},
        "route": GATEWAYS | {"query.page": {"enabled": True, "httpRoute": ROUTE}},
    },
    "listen": {"ipv4": {}, "dual": {"query.bindAddress": "::", "query.service.ipFamilyPolicy": "PreferDualStack"}},
    "outward": {
        "straight": {},
        "bundle": {"caBundle.configMap": "trust"},
        "proxy": {
            "proxy.https": "http://proxy.example.com:3128",
            "envFrom": [{"configMapRef": {"name": "models"}}, {"secretRef": {"name": "keys"}}],
        },
    },
    "registry": {
        "none": {},
        "mirror": {"global": {"imageRegistry": "registry.example.com/mirror/", "imagePullSecrets": ["mirror"]}},
    },
    "disruptions": {
        "on": {},
        "share": {"query.podDisruptionBudget.maxUnavailable": "25%"},
        "off": {"query.podDisruptionBudget.enabled": False},
    },
    "spread": {
        "on": {},
        "strict": {"query.topologySpread.zones": "DoNotSchedule"},
        "off": {"query.topologySpread.enabled": False},
    },
    "service": {
        "cluster": {},
        "balancer": {
            "query.service": {"type": "LoadBalancer", "headless": False, "annotations": {"a": "b"}},
            "networkPolicy.callers": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        },
    },
    "cache": {"node": {}, "volume": {"query.cache": {"storageClass": "fast", "size": "50Gi"}}},
    "wait": {"on": {}, "off": {"query.waitForSnapshot": False}},
    "processes": {"two": {}, "one": {"config.service": {"processes": 1, "drain_s": 0, "drain_delay_s": 2.5}}},
    "query pod": {"plain": {}, "placed": {"query.pod": POD}},
    "build pods": {
        "plain": {},
        "placed": {"build.inline.pod": POD, "build.ray.head.pod": POD, "build.ray.cpu.pod": POD},
    },
    "tls": {
        "none": {},
        "secret": {"tls.existingSecret": "tls"},
        "cert-manager": {
            "tls.certManager": {"enabled": True, "issuer": {"name": "ca"}, "extraDnsNames": ["rag.example.com"]}
        },
    },
    "client ca": {"none": {}, "secret": {"tls.clientCa.existingSecret": "clients"}},
    "callers": {"file": {}, "none": {"callers.existingSecret": ""}},
    "accounts": {
        "ours": {},
        "roles": {
            "query.serviceAccount.annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/q"},
            "build.serviceAccount.annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/b"},
        },
        "theirs": {"query.serviceAccount": {"create": False, "name": "rag"}, "build.serviceAccount.create": False},
    },
    "s3": {
        "role": {"s3.region": "eu-central-1"},
        "secret": {"s3": {"existingSecret": "s3", "sessionTokenKey": "AWS_SESSION_TOKEN"}},
    },
    "storage": {"object store": {}, "volume": {"storage.existingClaim": "indexes", "index.uri": "/data/index"}},
    "prompts": {"built in": {}, "own": {"prompts.configMap": "prompts"}},
    "models": {
        "built in": {},
        "endpoint": {
            "config.llm.endpoints.main": ENDPOINT,
            "config.llm.roles": {"extract": "main", "answer": "main"},
            "secretEnv": [{"name": "LLM_KEY", "secretName": "llm", "secretKey": "key"}],
        },
    },
    "vectors": {
        "memory": {},
        "milvus elsewhere": {
            "config.vectors": {"backend": "milvus", "uri": "https://milvus.example.com:19530", "token": "${MILVUS}"},
            "secretEnv": [{"name": "MILVUS", "secretName": "milvus", "secretKey": "token"}],
        },
    },
    "network": {
        "closed": {},
        "wide": {
            "networkPolicy": {
                "callers": [],
                "visitors": [],
                "scrapers": [],
                "dns": [],
                "egressPorts": [8443],
                "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
            }
        },
        "off": {"networkPolicy.enabled": False},
    },
    "watched from": {"here": {}, "elsewhere": {"monitoring.namespace": "monitoring"}},
    "scraped": {
        "no": {},
        "yes": {
            "monitoring.serviceMonitor": {
                "enabled": True,
                "labels": {"release": "prom"},
                "metricRelabelings": [{"action": "drop", "sourceLabels": ["le"], "regex": "0.1"}],
            },
            "monitoring.podMonitor.enabled": True,
            "monitoring.podMonitor.relabelings": [{"targetLabel": "team", "replacement": "search"}],
        },
    },
    "placement": {
        "none": {},
        "all": {
            "placement": {
                "tolerations": [{"key": "dedicated", "operator": "Exists"}],
                "priorityClassName": "high",
                "dnsPolicy": "None",
                "dnsConfig": {"nameservers": ["10.0.0.10"]},
                "hostAliases": [{"ip": "10.0.0.20", "hostnames": ["models.internal"]}],
            },
            "helperResources.limits.cpu": "1",
            "build.job": {"labels": {"kueue.x-k8s.io/queue-name": "builds"}, "annotations": {"team": "search"}},
        },
    },
    "alerts": {
        "no": {},
        "yes": {
            "monitoring.prometheusRule": {
                "enabled": True,
                "labels": {"release": "prom"},
                "runbookUrl": "https://example.com/operations",
                "snapshotAgeHours": 48,
                "buildHours": 12,
                "overdueHours": 36,
            }
        },
        "few": {"monitoring.prometheusRule": {"enabled": True, "kubeStateMetrics": False}},
    },
    "dashboard": {"no": {}, "yes": {"monitoring.dashboard": {"enabled": True, "annotations": {"folder": "RAG"}}}},
    "test": {
        "health": {},
        "question": {"test": {"question": 'Who lit the "lamp"?', "tokenSecret": {"name": "token"}}},
        "certificate": {"test": {"question": "Who?", "clientCertificateSecret": "client"}},
        "public": {"test": {"question": "Who?", "tokenSecret": {"name": "token"}, "ca": "", "serverName": "rag"}},
    },
    "image": {
        "tag": {},
        "digest": {"image": {"digest": f"sha256:{'0' * 64}", "pullSecrets": ["registry"], "repository": "team/h"}},
        "of the service": {"query.image": {"repository": "hirag-dist-query", "tag": "1"}},
    },
    "indexes": {
        "one": {},
        "catalogue": {"config.service": {"catalogue": "s3://bucket/indexes", "max_open_indexes": 20}},
        "named": {"config.service.indexes.acme": {"uri": "s3://bucket/acme", "title": "Acme"}},
    },
    "names": {
        "plain": {},
        "own": {"fullnameOverride": "a-name-as-long-as-it-may-be-1234", "commonLabels": {"team": "search"}},
    },
}
"""Values by dotted names. The first setting of a switch is the default."""

# Pairs that the chart refuses, each for a reason of its own, and of which one hides the other.
FORBIDDEN = {
    (("executor", "inline"), ("gpu", "on")),
    (("executor", "inline"), ("gpu", "fixed")),
    # A group of none, which nothing lets grow.
    (("ray autoscaling", "off"), ("gpu", "on")),
    (("tls", "none"), ("client ca", "secret")),
    (("callers", "none"), ("client ca", "none")),
    (("callers", "none"), ("tls", "none")),
    # Lists are replaced, not merged: the second one's secret would be missing.
    (("models", "endpoint"), ("vectors", "milvus elsewhere")),
    # No caller is admitted through it.
    (("service", "balancer"), ("network", "wide")),
    # TLS ends before the pods there.
    *((("client ca", "secret"), ("entry", setting)) for setting in ("ingress", "route")),
    *((("client ca", "secret"), ("page", setting)) for setting in ("inside", "ingress", "route")),
    *((("tls", "none"), ("page", setting)) for setting in ("inside", "mutual", "ingress", "route")),
    *((("callers", "none"), ("page", setting)) for setting in ("inside", "mutual", "ingress", "route")),
    # No caller could authenticate: no callers file and no accepted certificate.
    *((("callers", "none"), ("entry", setting)) for setting in ("ingress", "route")),
    # A release without Ray, or without a service, shows no setting of it.
    (("executor", "inline"), ("ray autoscaling", "off")),
    *((("executor", "inline"), ("ray auth", setting)) for setting in ("disabled", "secret")),
    *(
        (("query", "off"), (name, setting))
        for name in SWITCHES.keys() - {"builds", "executor", "query"}
        for setting in [*SWITCHES[name]][1:]
    ),
}


Choice = dict[str, str]


def values_of(choice: Choice) -> Values:
    """Return the values of a choice."""
    return merged(*(SWITCHES[name][setting] for name, setting in choice.items()))


def fits(choice: Choice, name: str, setting: str) -> bool:
    """Return whether a setting is compatible with the chosen ones."""
    one = (name, setting)
    return not any((one, other) in FORBIDDEN or (other, one) in FORBIDDEN for other in choice.items())


def covering() -> list[Choice]:
    """Return choices in which every setting of every switch occurs, the first of the defaults alone."""
    left = [(name, setting) for name, settings in SWITCHES.items() for setting in settings]
    made: list[Choice] = [{name: next(iter(settings)) for name, settings in SWITCHES.items()}]
    while left := [one for one in left if one not in made[-1].items()]:
        choice = dict(left[:1])
        for name, settings in SWITCHES.items():
            able = [setting for setting in settings if name not in choice and fits(choice, name, setting)]
            if able:
                choice[name] = next((setting for setting in able if (name, setting) in left), able[0])
        made.append(choice)
    return made


def everything() -> Choice:
    """Return the settings that make most objects."""
    return covering()[0] | {
        "builds": "both",
        "autoscaling": "on",
        "tls": "cert-manager",
        "client ca": "secret",
        "page": "mutual",
        "after": "both",
        "ray auth": "secret",
        "scraped": "yes",
        "alerts": "yes",
        "dashboard": "yes",
        "test": "question",
    }
