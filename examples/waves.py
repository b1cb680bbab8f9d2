#!/usr/bin/env python3
"""Makes two small tables of waves with noise: one to train a classifier on, one to predict from.

    waves.py TRAIN.csv NEW.csv [--sequences N] [--seed N]

A row is a time step: the sequence's `id`, the time `t`, the value `x`, and in TRAIN.csv the `label`, which is the kind of wave: sine, square or
saw. The sequences of NEW.csv are other ones, without labels.
"""
import argparse
import math
import random

STEPS, NOISE = 40, 0.2
# Of a phase in turns, 0 to 1.
WAVES = {
    "sine": lambda phase: math.sin(2 * math.pi * phase),
    "square": lambda phase: 1.0 if phase < 0.5 else -1.0,
    "saw": lambda phase: 2 * phase - 1,
}


def make_wave(kind: str) -> list[float]:
    """STEPS values of one to three periods that begin anywhere."""
    begin, frequency = random.random(), random.uniform(1, 3) / STEPS
    return [WAVES[kind]((begin + frequency * t) % 1) + random.gauss(0, NOISE) for t in range(STEPS)]


def write_table(path: str, sequences: int, labelled: bool) -> None:
    with open(path, "w", encoding="utf-8") as table:
        print("id,t,x" + (",label" if labelled else ""), file=table)
        for sequence in range(sequences):
            kind = random.choice(list(WAVES))
            for t, value in enumerate(make_wave(kind)):
                print(f"{sequence},{t},{value:.4f}" + (f",{kind}" if labelled else ""), file=table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", help="the table with labels")
    parser.add_argument("new", help="the table without")
    parser.add_argument("--sequences", type=int, default=1000, help="of the table with labels; the other one has 5")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random.seed(options.seed)
    write_table(options.train, options.sequences, True)
    write_table(options.new, 5, False)


if __name__ == "__main__":
    main()
