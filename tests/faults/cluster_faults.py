"""Faults of the operator and of what it sees: replicas, API server, watches, network, clocks."""

from __future__ import annotations

import random
import signal
import time

from tests.faults.skewing import skewed_environment
from tests.faults.world import World
from tests.operators import ROOT

BINDING = "pelops-operator"  # of the operators' ClusterRole


def kill_operators(world: World, dice: random.Random) -> str:
    """SIGKILL of replicas when they have a dead worker's entries to recover."""
    world.signal_some(dice, signal.SIGKILL)
    time.sleep(dice.uniform(0, 0.9))
    count = dice.choice([1, 1, 2, 3])
    fleet = dice.choice(world.fleets)
    fleet.kill(dice, count)
    time.sleep(dice.uniform(0, 1))
    fleet.replace()
    return f"{count} replicas"


def skew_operators(world: World, dice: random.Random) -> str:
    """Replicas are killed, and their successors' clocks are wrong."""
    seconds = dice.choice(world.setting.operator_skews_s)
    world.fleets[0].kill(dice, 2)
    world.fleets[0].replace(**skewed_environment(seconds))
    world.signal_some(dice, signal.SIGKILL)
    return f"{seconds:+g} s"


def hurt_api_server(world: World, dice: random.Random) -> str:
    """The API server hangs, is slow, or is killed and comes back, while workers die."""
    how = dice.choice(["hangs", "slow", "killed"])
    plane = world.ground.plane
    if how == "slow":
        world.to_api.delay(dice.uniform(0.1, 0.4))
        _kill_while(world, dice, 3)
        world.to_api.delay(0)
    elif how == "hangs":
        plane.process("kube-apiserver").pause()
        _kill_while(world, dice, dice.uniform(2, 5))
        plane.process("kube-apiserver").resume()
    else:
        plane.process("kube-apiserver").kill()
        _kill_while(world, dice, dice.uniform(0, 2))
        plane.restart("kube-apiserver")
    return how


def delay_rights(world: World, dice: random.Random) -> str:
    """The API server is killed and comes back, and answers 403 until the rights are loaded."""
    plane, seconds = world.ground.plane, dice.uniform(3, 12)
    plane.kubectl("delete", "clusterrolebinding", BINDING, "--ignore-not-found")
    try:
        plane.process("kube-apiserver").kill()
        plane.restart("kube-apiserver")
        _churn(world, dice)
        _kill_while(world, dice, seconds)
    finally:
        plane.kubectl("apply", "-f", str(ROOT / "manifests" / "base" / "cluster_role.yaml"))
    return f"for {seconds:.1f} s"


def hurt_watch(world: World, dice: random.Random) -> str:
    """The operators' watches fall behind, or begin at a version that the API server forgot."""
    if dice.random() < 0.6:
        with world.to_api.stalling():
            _churn(world, dice)
        world.to_api.cut()
        return "stale"
    with world.to_api.refusing():
        _churn(world, dice)
        # A fresh API server begins its history anew: older versions are answered by 410 Gone.
        world.ground.plane.restart("kube-apiserver")
        _churn(world, dice)
    return "gone"


def hurt_network(world: World, dice: random.Random) -> str:
    """Connections to Redis are cut, slow, refused, or never answered."""
    who = dice.choice(sorted(world.to_redis))
    proxy = world.to_redis[who]
    how = dice.choice(["cut", "slow", "muted", "refused"])
    if how == "cut":
        proxy.cut()
    elif how == "slow":
        proxy.delay(dice.uniform(0.02, 0.3))
        _kill_while(world, dice, dice.uniform(1, 3))
        proxy.delay(0)
    elif how == "muted":
        proxy.mute()
        _kill_while(world, dice, dice.uniform(1, 7))
        proxy.heal()
    else:
        with proxy.refusing():
            _kill_while(world, dice, dice.uniform(0.5, 3))
    return f"{who} {how}"


def upgrade_operators(world: World, dice: random.Random) -> str:
    """All replicas are replaced by those of another version, one by one, with a worker's death."""
    world.signal_some(dice, signal.SIGKILL)
    assert world.upgrade is not None
    return world.upgrade.roll(world.fleets[0], dice)


def disturb_twins(world: World, dice: random.Random) -> str:
    """Replicas of one of the two operators are killed and replaced, with a worker's death."""
    world.signal_some(dice, signal.SIGKILL)
    number = dice.randrange(len(world.fleets))
    world.fleets[number].kill(dice, dice.choice([1, 3]))
    time.sleep(dice.uniform(0, 1))
    world.fleets[number].replace()
    return f"operator {number + 1}"


def _kill_while(world: World, dice: random.Random, seconds: float) -> None:
    time.sleep(seconds / 2)
    if dice.random() < 0.5:
        world.signal_some(dice, signal.SIGKILL)
    time.sleep(seconds / 2)


def _churn(world: World, dice: random.Random) -> None:
    """Pods come and go, and containers restart, which a delayed watch does not report."""
    pods = [pod["metadata"]["name"] for pod in world.pods()]
    if pods:
        world.kubectl("delete", "pod", dice.choice(pods), "--wait=false")
    world.signal_some(dice, signal.SIGKILL)
    time.sleep(dice.uniform(0.5, 2))
