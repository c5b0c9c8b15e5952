"""The services that run in this process, and the agents that run them: a `Service` itself is data and holds no agent.

An agent is listed from `begin` to `forget`: `Service.stop` and the end of a `with` block find it here.
"""

from __future__ import annotations

from pipelines.errors import StreamerError
from streamer.agent.agent import Agent
from streamer.agent.signals import stopped_by_signals
from streamer.agent.summary import Summary
from streamer.definition.service import Service

# By the identity of the service, as equal services run apart. Each agent keeps its service, so no identity comes twice.
_agents: dict[int, Agent] = {}


def begin(service: Service, *, start_from: str | None = None) -> Agent:
    """A new agent for the service, not started. Raises `StreamerError` if the service runs already."""
    earlier = agent_of(service)
    if earlier is not None and earlier.summary is None:
        raise StreamerError(f'the service "{service.name}" runs already; stop it first, or make another')
    agent = _agents[id(service)] = Agent(service, start_from=start_from)
    return agent


def agent_of(service: Service) -> Agent | None:
    """The agent that runs this service, or that ran it and is still listed."""
    return _agents.get(id(service))


def forget(agent: Agent) -> None:
    """No longer list this agent, unless it runs still, as after a `KeyboardInterrupt`."""
    if agent.summary is not None and agent_of(agent.service) is agent:
        del _agents[id(agent.service)]


def run(service: Service, start_from: str | None = None) -> Summary:
    """Run the service until it ends or a signal stops it."""
    agent = begin(service, start_from=start_from)
    try:
        with stopped_by_signals(agent.stop):
            return agent.run()
    finally:
        forget(agent)


def start(service: Service) -> None:
    """Run the service in the background. If it does not start, it is not listed."""
    agent = begin(service)
    try:
        agent.start()
    except BaseException:
        forget(agent)
        raise


def stop(service: Service) -> None:
    """Ask the service to stop; does nothing if no agent runs it."""
    if (agent := agent_of(service)) is not None:
        agent.stop()


def end(service: Service, *, failed: bool = False) -> None:
    """Stop the service and wait for its end. Raises `StreamerError` if it failed, unless the caller `failed` too."""
    if (agent := agent_of(service)) is None:
        return
    agent.stop()
    try:
        summary = agent.join()
    finally:
        forget(agent)
    if summary.error is not None and not failed:
        raise StreamerError(summary.error)
