"""Proximal policy optimisation with an LSTM, on a task that needs memory.

    python recurrent_ppo.py [--seconds 60]

An episode shows a cue at its first step, then noise, and at its last step a signal. The reward is 1 if the action at
the signal is the cue. Environments run side by side, and their episodes end at different times. With `resets=` the
update reads all steps of all environments in one call: at a step where an episode begins, the LSTM's states are zero
again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import recurve
import torch
from torch import Tensor, nn

CUES = 4
States = tuple[Tensor, Tensor]


class Environments:
    """Episodes of random lengths, side by side. An observation has a cue (one-hot), a signal and noise."""

    features = CUES + 2

    def __init__(self, count: int, shortest: int = 4, longest: int = 12) -> None:
        self.count, self.shortest, self.longest = count, shortest, longest
        self.cue = torch.zeros(count, dtype=torch.int64)
        self.left = torch.zeros(count, dtype=torch.int64)  # steps after this one
        self.begin(torch.ones(count, dtype=torch.bool))

    def begin(self, which: Tensor) -> None:
        self.cue = torch.where(which, torch.randint(CUES, (self.count,)), self.cue)
        self.left = torch.where(which, torch.randint(self.shortest - 1, self.longest, (self.count,)), self.left)
        self.first = which

    def observe(self) -> Tensor:
        cue = nn.functional.one_hot(self.cue, CUES) * self.first.unsqueeze(1)
        signal = (self.left == 0).unsqueeze(1)
        return torch.cat([cue.float(), signal.float(), torch.randn(self.count, 1)], 1)

    def act(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards, and where an episode has ended and the next one begins."""
        done = self.left == 0
        reward = (done & (action == self.cue)).float()
        self.left = self.left - 1
        self.begin(done)
        return reward, done


class Agent(nn.Module):
    """Logits of actions, and values."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.lstm = recurve.nn.LSTM(features, hidden)
        self.actor = nn.Linear(hidden, CUES)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, observations: Tensor, resets: Tensor, states: States) -> tuple[Tensor, Tensor, States]:
        """observations: [steps, environments, features]; resets: [steps, environments], where an episode begins."""
        y, states = self.lstm(observations, states, resets=resets)
        return self.actor(y), self.critic(y).squeeze(-1), states


@dataclass
class Rollout:
    """[steps, environments], and the states before the first step."""

    observations: Tensor
    resets: Tensor
    actions: Tensor
    logarithms: Tensor  # of the actions' probabilities
    rewards: Tensor
    values: Tensor
    advantages: Tensor
    states: States

    def part(self, rows: Tensor) -> Rollout:
        """Some of the environments."""
        arrays = {name: value[:, rows] for name, value in vars(self).items() if name != "states"}
        return Rollout(**arrays, states=(self.states[0][:, rows], self.states[1][:, rows]))


class Collector:
    """Runs an agent in environments."""

    def __init__(self, agent: Agent, environments: Environments) -> None:
        self.agent, self.environments = agent, environments
        zero = torch.zeros(1, environments.count, agent.lstm.hidden_size)
        self.states: States = (zero, zero)
        self.episodes: list[float] = []  # the returns of those that have ended

    @torch.no_grad()
    def collect(self, steps: int, discount: float = 0.95, trace: float = 0.95) -> Rollout:
        first, rows = self.states, []
        for _ in range(steps):
            observation, reset = self.environments.observe(), self.environments.first
            logits, value, self.states = self.agent(observation[None], reset[None], self.states)
            policy = torch.distributions.Categorical(logits=logits[0])
            action = policy.sample()
            reward, done = self.environments.act(action)
            self.episodes += reward[done].tolist()
            rows.append((observation, reset, action, policy.log_prob(action), reward, value[0]))
        observations, resets, actions, logarithms, rewards, values = (torch.stack(row) for row in zip(*rows))
        _, last, _ = self.agent(self.environments.observe()[None], self.environments.first[None], self.states)
        begins = torch.cat([resets[1:], self.environments.first[None]])
        advantages = advantages_of(rewards, torch.cat([values, last]), begins, discount, trace)
        return Rollout(observations, resets, actions, logarithms, rewards, values, advantages, first)


def advantages_of(rewards: Tensor, values: Tensor, begins: Tensor, discount: float, trace: float) -> Tensor:
    """Generalised advantage estimation. values: [steps + 1, environments]; begins: a new episode follows a step."""
    goes_on = (~begins).float()
    errors = rewards + discount * goes_on * values[1:] - values[:-1]
    decay = discount * trace * goes_on
    # advantages[t] = decay[t] * advantages[t+1] + errors[t]
    return recurve.nn.scan(decay, errors, reverse=True)


def run_in_one_call(agent: Agent, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Logits [steps, environments, CUES] and values [steps, environments]."""
    logits, values, _ = agent(rollout.observations, rollout.resets, rollout.states)
    return logits, values


def run_in_a_loop(agent: Agent, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """The same with torch.nn.LSTM, step by step."""
    lstm, (h, c), outputs = agent.lstm.as_torch(), rollout.states, []
    for observation, reset in zip(rollout.observations, rollout.resets):
        goes_on = (~reset).float().unsqueeze(-1)
        y, (h, c) = lstm(observation[None], (h * goes_on, c * goes_on))
        outputs.append(y)
    y = torch.cat(outputs)
    return agent.actor(y), agent.critic(y).squeeze(-1)


Run = Callable[[Agent, Rollout], tuple[Tensor, Tensor]]


def loss_of(agent: Agent, rollout: Rollout, run: Run, clip: float = 0.2) -> Tensor:
    logits, values = run(agent, rollout)
    policy = torch.distributions.Categorical(logits=logits)
    ratio = (policy.log_prob(rollout.actions) - rollout.logarithms).exp()
    advantages = (rollout.advantages - rollout.advantages.mean()) / (rollout.advantages.std() + 1e-8)
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()
    error = (rollout.values + rollout.advantages - values).square().mean()
    return 0.5 * error - gain - 0.01 * policy.entropy().mean()


def update(
    agent: Agent, optimiser: torch.optim.Optimizer, rollout: Rollout, run: Run, epochs: int = 4, parts: int = 4
) -> None:
    """Some passes over the rollout, each in parts of whole rows, so that a row's steps stay together."""
    for _ in range(epochs):
        for rows in torch.randperm(rollout.actions.shape[1]).chunk(parts):
            optimiser.zero_grad()
            loss_of(agent, rollout.part(rows), run).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimiser.step()


def time_update(agent: Agent, rollout: Rollout, run: Run, seconds: float) -> float:
    """The median time of an update, whose changes of the parameters are undone."""
    copy = {name: value.clone() for name, value in agent.state_dict().items()}
    optimiser = torch.optim.SGD(agent.parameters(), lr=1e-6)
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < until:
        begin = time.perf_counter()
        update(agent, optimiser, rollout, run)
        times.append(time.perf_counter() - begin)
    agent.load_state_dict(copy)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of training, at most")
    parser.add_argument("--return", type=float, default=0.95, dest="enough", help="end when the mean return is above")
    parser.add_argument("--environments", type=int, default=64)
    parser.add_argument("--steps", type=int, default=64, help="of each environment in an update")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    environments = Environments(arguments.environments)
    agent = Agent(environments.features, arguments.hidden)
    collector = Collector(agent, environments)
    optimiser = torch.optim.Adam(agent.parameters(), lr=arguments.learning_rate)
    begin, count, mean = time.monotonic(), 0, 0.0
    while time.monotonic() - begin < arguments.seconds and mean < arguments.enough:
        rollout = collector.collect(arguments.steps)
        update(agent, optimiser, rollout, run_in_one_call)
        count += 1
        mean = statistics.fmean(collector.episodes[-1000:])
        if count % 5 == 0 or mean >= arguments.enough:
            print(f"{time.monotonic() - begin:6.1f} s  update {count}: mean return {mean:.3f}", flush=True)
    print(f"chance: {1 / CUES:.3f}, after training: {mean:.3f}")

    rollout = collector.collect(arguments.steps)
    with torch.no_grad():
        difference = (run_in_one_call(agent, rollout)[0] - run_in_a_loop(agent, rollout)[0]).abs().max()
    print(f"largest difference of logits between one call and a loop: {difference:.1e}")
    for name, run in (("one call with resets=", run_in_one_call), ("a loop over the steps", run_in_a_loop)):
        print(f"update, {name}: {1e3 * time_update(agent, rollout, run, min(3, arguments.seconds)):.0f} ms")


if __name__ == "__main__":
    main()
