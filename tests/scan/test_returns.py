from tests import naive
def test_x(): assert naive.gae
