"""Trains on tokens; one batch has a token that the vocabulary has not.

``--device cpu`` does the same on the CPU, which checks every index and says so at once.
"""

import argparse

import torch
from torch import nn

VOCABULARY, WIDTH, CLASSES = 1000, 2048, 8


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(4)]
        self.body = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.table(tokens)
        return self.body(hidden).mean(dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    model = Classifier().to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        tokens = torch.randint(0, VOCABULARY, (options.batch_size, 128), device=options.device)
        if step == 5:
            tokens[3, 17] = VOCABULARY  # a word that was added to the tokenizer alone
        labels = torch.randint(0, CLASSES, (options.batch_size,), device=options.device)
        loss = nn.functional.cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 9:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    print("trained", flush=True)


if __name__ == "__main__":
    main()
