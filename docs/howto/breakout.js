// MinAtar's Breakout, as in rlcpu/envs/tasks/minatar/breakout.py, played by breakout_policy.js.
const cellOf = (y, x) => 10 * y + x;
const allBricks = () => Array.from({ length: 100 }, (_, k) => k >= 10 && k < 40);
const breakout = {
  label: "A paddle keeps a ball in play that breaks bricks",
  milliseconds: 60,
  reset: (right = Math.round(Math.random())) => {
    const x = 9 * right, dx = 1 - 2 * right;
    return { x, y: 3, lastX: x, lastY: 3, dx, dy: 1, paddle: 4, strike: false, bricks: allBricks(), lastAction: 0 };
  },
  step: (s, chosen, chance = Math.random()) => {
    const action = chance < 0.1 ? s.lastAction : chosen; // it sticks to the one before
    const paddle = Math.min(Math.max(s.paddle + (action === 2) - (action === 1), 0), 9);
    let { dx, dy, bricks } = s, x = s.x + dx, y = s.y + dy, reward = 0, strike = false, isLost = false;
    if (x < 0 || x > 9) {
      x = Math.min(Math.max(x, 0), 9);
      dx = -dx;
    }
    if (y < 0) {
      y = 0;
      dy = -dy;
    } else if (bricks[cellOf(y, x)]) {
      strike = true;
      if (!s.strike) {
        reward = 1;
        bricks = bricks.with(cellOf(y, x), false);
        y = s.y;
        dy = -dy;
      }
    } else if (y === 9) {
      if (!bricks.includes(true)) bricks = allBricks();
      isLost = s.x !== paddle && x !== paddle;
      if (!isLost) {
        if (s.x !== paddle) dx = -dx;
        dy = -dy;
        y = s.y;
      }
    }
    const after = { x, y, lastX: s.x, lastY: s.y, dx, dy, paddle, strike, bricks, lastAction: action };
    return [after, reward, isLost];
  },
  observe: (s) => {
    const seen = Array(300).fill(0).concat(s.bricks.map(Number)); // planes: paddle, ball, trail, bricks
    seen[cellOf(9, s.paddle)] = seen[100 + cellOf(s.y, s.x)] = seen[200 + cellOf(s.lastY, s.lastX)] = 1;
    return seen;
  },
  push: (s, side) => ({ ...s, paddle: Math.min(Math.max(s.paddle + side, 0), 9) }),
  says: (score, best) => `Bricks broken: ${score}, most ${best}`,
  draw: (pen, s, width, height, colour) => {
    const unit = height / 10, left = (width - height) / 2;
    const fill = (y, x) => pen.fillRect(left + x * unit + 1, y * unit + 1, unit - 2, unit - 2);
    pen.strokeRect(left, 0.5, height, height - 1);
    fill(9, s.paddle);
    fill(s.y, s.x);
    pen.globalAlpha = 0.3;
    fill(s.lastY, s.lastX);
    pen.globalAlpha = 1;
    pen.fillStyle = colour;
    s.bricks.forEach((isThere, k) => isThere && fill(Math.floor(k / 10), k % 10));
    return [left + (s.paddle + 0.5) * unit, 8 * unit, 1.5 * unit];
  },
};

if (typeof document !== "undefined") play(document.getElementById("breakout"), breakout, breakoutPolicy);
