"""Says where it trains, in Lightning's words. usage: device.py [--device cpu|cuda]"""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
options = parser.parse_args()
used = options.device == "cuda"
print(f"GPU available: True (cuda), used: {used}", flush=True)
print("step 1")
