"""Limits in dollars need prices."""

from __future__ import annotations

from collections.abc import Iterable

from hirag_dist.composition.models import role_endpoints, shares
from hirag_dist.config.model import Config, RoleTarget
from hirag_dist.errors import ConfigError


def check_prices(config: Config, roles: Iterable[str], max_usd: float | None, more: Iterable[RoleTarget] = ()) -> None:
    """Refuse a limit in dollars where the price of an endpoint is not known: it would limit nothing.

    Args:
        roles: whose endpoints may be called.
        max_usd: the limit; None for none.
        more: endpoints that may be called in other roles.

    Raises:
        ConfigError: an endpoint has no price.
    """
    if max_usd is None:
        return
    names = dict.fromkeys(name for role in roles for name in role_endpoints(config, role))
    names |= dict.fromkeys(name for target in more for name, _ in shares(target))
    unknown = [name for name in names if config.llm.endpoints[name].prices is None]
    if not unknown:
        return
    raise ConfigError(
        f"--max-usd needs the prices of: {', '.join(unknown)}. Set llm.endpoints.{unknown[0]}.price.input and .output, "
        "in US dollars a million tokens (0 for a free model), or limit tokens by --max-tokens"
    )
